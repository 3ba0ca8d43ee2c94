"""Threads that really run side by side, and streams that really stop."""

from pathlib import Path

from shoal.wire.messages import Pieces, Stop
from tests.process.worker_front import serving

STREAM = """
    import threading

    closed = threading.Event()

    def endless(item):
        try:
            while True:
                yield item
        finally:
            print("closed", item.decode(), flush=True)

    def predict(items):
        if items == [b"plain"]:
            return items
        return [endless(item) for item in items]
"""


def test_preprocessing_of_a_batch_overlaps_inference_of_the_one_before(tmp_path: Path) -> None:
    source = """
        import threading

        together = threading.Barrier(2, timeout=20)

        class Meeting:
            def decode(self, item):
                if item == b"second":
                    together.wait()
                return item

            def inference(self, data):
                if data == [b"first"]:
                    together.wait()
                return data
    """
    with serving(tmp_path, source) as front:
        front.run(1, b"first")
        front.run(2, b"second")
        assert [front.end(), front.end()] == [(1, [b"first"]), (2, [b"second"])]


def test_instances_run_side_by_side(tmp_path: Path) -> None:
    source = """
        import threading

        together = threading.Barrier(2, timeout=20)

        def predict(items):
            together.wait()
            return items
    """
    with serving(tmp_path, source, instances=2) as front:
        front.run(1, b"a", instance=0)
        front.run(2, b"b", instance=1)
        assert dict([front.end(), front.end()]) == {1: [b"a"], 2: [b"b"]}
        assert front.stop() == 0


def test_micro_batches_of_one_batch_overlap_and_come_back_in_order(tmp_path: Path) -> None:
    source = """
        import threading

        together = threading.Barrier(4, timeout=20)

        class Meeting:
            def inference(self, data):
                together.wait()
                return data
    """
    micro = {"micro_batch_size": 2, "parallelism": {"inference": 4}}
    with serving(tmp_path, source, micro_batching=micro) as front:
        bodies = [b"%d" % number for number in range(8)]
        assert front.answer(1, *bodies) == bodies


def test_a_stream_runs_until_it_is_cancelled_and_the_next_batch_follows(tmp_path: Path) -> None:
    with serving(tmp_path, STREAM) as front:
        front.run(1, b"a")
        assert isinstance(front.receive()[0], Pieces)
        front.run(2, b"plain")
        front.cancel(1, 0)
        assert front.end()[0] == 1
        assert front.end() == (2, [b"plain"])
        assert front.process.stdout is not None
        assert front.process.stdout.readline() == "closed a\n"


def test_cancelling_one_stream_leaves_its_neighbour_running(tmp_path: Path) -> None:
    with serving(tmp_path, STREAM) as front:
        front.run(1, b"a", b"b")
        front.cancel(1, 0)
        assert front.process.stdout is not None
        seen = [piece.index for _ in range(2000) for piece in front.receive()[0].pieces]
        assert seen[-100:] == [1] * 100
        assert front.process.stdout.readline() == "closed a\n"
        front.cancel(1, 1)
        front.end(2)
        assert front.process.stdout.readline() == "closed b\n"


def test_a_stream_cancelled_before_its_turn_ends_at_its_first_piece(tmp_path: Path) -> None:
    with serving(tmp_path, STREAM) as front:
        front.run(1, b"a")
        front.receive()
        front.run(2, b"b")
        front.cancel(2, 0)
        front.cancel(1, 0)
        assert front.end()[0] == 1
        number, (told,) = front.end()
        assert number == 2
        assert told in (b"", b"b")


def test_a_stream_in_a_stage_of_its_own_can_be_cancelled(tmp_path: Path) -> None:
    source = """
        class Endless:
            def inference(self, data):
                while True:
                    yield data
    """
    with serving(tmp_path, source) as front:
        front.run(1, b"a", b"b")
        front.receive()
        front.cancel(1, 0)
        front.cancel(1, 1)
        assert front.end(2)[0] == 1
        assert front.stop() == 0


def test_a_stream_can_be_cancelled_after_stop(tmp_path: Path) -> None:
    for form in (STREAM, "class E:\n def inference(self, data):\n  while True:\n   yield data\n"):
        with serving(tmp_path, form) as front:
            front.run(1, b"a")
            front.receive()
            front.send(Stop())
            front.cancel(1, 0)
            assert front.end()[0] == 1
            assert front.receive()[0] is None
            assert front.exit_code() == 0


def test_a_stream_ends_when_the_front_process_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path, STREAM) as front:
        front.run(1, b"a")
        front.receive()
        front.socket.close()
        assert front.exit_code() == 0


def test_nonsense_in_the_middle_of_a_stream_is_still_a_protocol_error(tmp_path: Path) -> None:
    with serving(tmp_path, STREAM) as front:
        front.run(1, b"a")
        front.receive()
        front.socket.sendall(b"\xff" * 12)
        while front.receive()[0] is not None:
            pass
        assert front.exit_code() == 2
