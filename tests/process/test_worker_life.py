"""From the first word to the last: load, serve, stop, and every way of the other side to misbehave."""

import json
import struct
from pathlib import Path

import pytest

from shoal.wire.memory import Arena
from shoal.wire.messages import Answered, Cancel, Failure, Item, Load, Loaded, PartHead, Run, Stop, Unloadable
from tests.process.worker_front import serving, worker

MODELS = Path(__file__).parents[1] / "models"
ECHO = """
    def predict(items):
        return items
"""


def test_a_plain_function_is_served_until_told_to_stop() -> None:
    with worker() as front:
        assert front.load(MODELS / "echo.py") == Loaded("predict", 1, False)
        assert front.answer(1, b"a", b"bc") == [b"a", b"bc"]
        assert front.answer(2, b'{"a": 1}', content_type="application/json") == [b'{"a":1}']
        assert front.stop() == 0


def test_a_staged_handler_has_a_place_for_each_stage() -> None:
    with worker() as front:
        assert front.load(MODELS / "staged.py") == Loaded("Staged", 3, False)
        assert front.answer(1, b"a", b"b") == [b"a", b"b"]
        assert front.stop() == 0


def test_a_body_in_shared_memory_is_read_in_place() -> None:
    arena = Arena(2**20)
    block = arena.lend(40_000)
    assert block is not None
    block.view[:] = b"x" * 40_000
    with worker(arena.fd) as front:
        front.load(MODELS / "echo.py")
        front.send(Run(1, 0, [Item([PartHead("body", "", 40_000, block.offset)])]))
        assert front.end() == (1, [b"x" * 40_000])
    arena.close()


def test_the_collector_does_not_go_through_a_loaded_model_again(tmp_path: Path) -> None:
    code = """
    import gc
    made = [[] for _ in range(50_000)]
    def predict(items):
        return [any(each is made for each in gc.get_objects()) for item in items]
    """
    with serving(tmp_path, code) as front:
        assert front.answer(1, b"") == [b"false"]


def test_a_model_that_cannot_be_loaded_says_why_and_leaves_with_1(tmp_path: Path) -> None:
    (tmp_path / "bees.py").write_text("import torhc\n")
    with worker() as front:
        word = front.load(tmp_path / "bees.py")
        assert isinstance(word, Unloadable)
        assert word.message == "bees.py line 1: No module named 'torhc'"
        assert "torhc" in word.traceback
        assert not word.is_temporary
        assert front.exit_code() == 1


def test_memory_that_ran_out_while_loading_is_temporary(tmp_path: Path) -> None:
    (tmp_path / "bees.py").write_text("raise MemoryError\n")
    with worker() as front:
        assert front.load(tmp_path / "bees.py").is_temporary
        assert front.exit_code() == 1


def test_a_configuration_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with worker() as front:
        word = front.load(tmp_path / "bees.py", instances=0)
        assert isinstance(word, Unloadable)
        assert "instances must be 1 or more" in word.message
        assert front.exit_code() == 1


def test_a_crash_ends_the_stream_with_the_handlers_own_exit_code(tmp_path: Path) -> None:
    with serving(tmp_path, "import os\ndef predict(items): os._exit(7)\n") as front:
        front.run(1, b"")
        assert front.receive()[0] is None
        assert front.exit_code() == 7


@pytest.mark.parametrize("word", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_a_handler_that_wants_to_exit_fails_its_batch_only(tmp_path: Path, word: str) -> None:
    source = f"""
        import sys

        def predict(items):
            if items[0] == b"leave":
                {word}
            return items
    """
    with serving(tmp_path, source) as front:
        (failed,) = front.answer(1, b"leave")
        assert isinstance(failed, Failure)
        assert failed.kind == "handler"
        assert front.answer(2, b"stay") == [b"stay"]
        assert front.stop() == 0


def test_a_wrong_number_of_results_fails_the_batch_and_nothing_else(tmp_path: Path) -> None:
    with serving(tmp_path, "def predict(items): return items[:3]\n") as front:
        told = front.answer(1, b"", b"", b"", b"")
        assert {failure.message for failure in told if isinstance(failure, Failure)} == {
            "handler predict gave 3 results for 4 requests"
        }
        assert len(told) == 4
        assert front.answer(2, b"a", b"b") == [b"a", b"b"]


def test_what_a_handler_prints_and_where_it_fails_can_be_read(tmp_path: Path) -> None:
    source = """
        def predict(items):
            print("buzz", flush=True)
            raise ValueError("sting")
    """
    with serving(tmp_path, source) as front:
        (failed,) = front.answer(1, b"")
        assert isinstance(failed, Failure)
        assert "sting" in failed.traceback
        assert front.stop() == 0
        out, errors = front.process.communicate(timeout=20)
    assert out == "buzz\n"
    assert "predict raised ValueError: sting" in errors
    assert "bees.py" in errors
    assert "shoal/worker" not in errors


def test_printed_text_is_not_lost_when_the_worker_leaves(tmp_path: Path) -> None:
    with serving(tmp_path, "def predict(items):\n    print('buzz', end='')\n    return items\n") as front:
        front.answer(1, b"")
        assert front.stop() == 0
        assert front.process.communicate(timeout=20)[0] == "buzz"


def test_a_worker_leaves_when_the_front_process_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as front:
        front.socket.close()
        assert front.exit_code() == 0


def test_a_worker_leaves_at_once_though_its_threads_hang(tmp_path: Path) -> None:
    source = """
        import threading

        class Hung:
            def inference(self, data):
                print("in", flush=True)
                threading.Event().wait()
    """
    with serving(tmp_path, source) as front:
        front.run(1, b"")
        assert front.process.stdout is not None
        assert front.process.stdout.readline() == "in\n"
        front.socket.close()
        assert front.exit_code() == 0


def test_half_a_frame_is_a_protocol_error(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as front:
        front.socket.sendall(struct.pack("<IQ", 50, 0) + b"half")
        front.socket.close()
        assert front.exit_code() == 2
        assert front.process.stderr is not None
        assert "in the middle of a frame" in front.process.stderr.read()


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack("<IQ", 4, 0) + b"\xc1\xc1\xc1\xc1",
        struct.pack("<IQ", 2**31, 0),
    ],
)
def test_what_is_no_message_is_a_protocol_error(tmp_path: Path, nonsense: bytes) -> None:
    with serving(tmp_path, ECHO) as front:
        front.socket.sendall(nonsense)
        assert front.receive()[0] is None
        assert front.exit_code() == 2


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (Load({"name": "m", "path": "x"}, "w", True, 0), "one model, once"),
        (Run(1, 5, []), "no number 5"),
        (Run(1, -1, []), "no number -1"),
        (Run(1, 0, [Item([PartHead("body", "", 10)])]), "came with 0 bytes"),
    ],
)
def test_a_command_out_of_place_is_a_protocol_error(tmp_path: Path, command: Load | Run, problem: str) -> None:
    with serving(tmp_path, ECHO) as front:
        front.send(command)
        assert front.receive()[0] is None
        assert front.exit_code() == 2
        assert front.process.stderr is not None
        assert problem in front.process.stderr.read()


def test_the_first_command_must_be_load() -> None:
    with worker() as front:
        front.receive()
        front.send(Stop())
        assert front.receive()[0] is None
        assert front.exit_code() == 2


@pytest.mark.parametrize(
    "form", ["def predict(items): return items\n", "class A:\n def inference(self, d): return d\n"]
)
def test_stop_lets_everything_before_it_finish(tmp_path: Path, form: str) -> None:
    with serving(tmp_path, form) as front:
        for number in range(20):
            front.run(number, b"%d" % number)
        front.send(Stop())
        ended = dict(front.end() for _ in range(20))
        assert ended == {number: [b"%d" % number] for number in range(20)}
        assert front.receive()[0] is None
        assert front.exit_code() == 0


def test_a_cancellation_of_an_unknown_batch_is_ignored(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as front:
        front.send(Cancel(99, 0))
        assert front.answer(1, b"a") == [b"a"]


def test_torchserve_rows_headers_and_statuses_make_the_round_trip(tmp_path: Path) -> None:
    source = """
        class Service:
            def initialize(self, context):
                self.context = context

            def handle(self, data, context):
                self.context.set_response_header(0, "X-Seen", context.get_request_header(0, "x-trace"))
                self.context.set_response_status(202, "Seen", idx=0)
                return [{"keys": sorted(data[0]), "id": context.get_request_id(0)}]
    """
    with serving(tmp_path, source) as front:
        parts = [PartHead("data", "image/png", 1), PartHead("note", "text/plain", 1)]
        front.send(Run(1, 0, [Item(parts, b"id-1", [(b"X-Trace", b"t")])]), [b"ab"])
        report, data = front.receive()
        (piece,) = report.pieces
        assert (piece.status, piece.reason, piece.headers) == (202, "Seen", [("X-Seen", "t")])
        assert json.loads(data) == {"keys": ["data", "note"], "id": "id-1"}


def test_very_many_large_answers_come_back_whole(tmp_path: Path) -> None:
    with serving(tmp_path, "def predict(items): return [item * 5000 for item in items]\n") as front:
        bodies = [b"%03d" % number for number in range(700)]
        assert front.answer(1, *bodies) == [body * 5000 for body in bodies]


def test_one_frame_answers_a_batch(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as front:
        front.run(1, *[b"x"] * 32)
        report, _ = front.receive()
        assert isinstance(report, Answered)
        assert report.sizes == [1] * 32
