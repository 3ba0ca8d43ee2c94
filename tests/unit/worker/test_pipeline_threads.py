import threading
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.model import MicroBatching
from shoal.wire.messages import Failure
from shoal.worker.pipeline import Threaded
from tests.unit.worker.making import Doubler, Listener, batch, messages, nothing, program, staged


def test_preprocessing_overlaps_inference_of_the_batch_before() -> None:
    together = threading.Barrier(2, timeout=20)

    class Meeting:
        def decode(self, item: Any) -> Any:
            if item == b"second":
                together.wait()
            return item

        def inference(self, data: Any) -> Any:
            if data == [b"first"]:
                together.wait()
            return data

    made = program(Meeting())
    listener = Listener()
    pipeline = Threaded(made, MicroBatching(), None, nothing)
    pipeline.start()
    pipeline.submit(batch(1, [b"first"], listener))
    pipeline.submit(batch(2, [b"second"], listener))
    listener.wait(2)
    assert listener.results(1, 1) == [b"first"]
    assert listener.results(2, 1) == [b"second"]


def test_a_failing_slice_fails_only_its_own_items() -> None:
    class Fussy(Doubler):
        def inference(self, data: list[int]) -> list[int]:
            if 3 in data:
                raise RuntimeError("three")
            return super().inference(data)

    results, _ = staged(Fussy(), *[b"%d" % number for number in range(6)], size=2)
    assert results[:2] == [b"0", b"2"]
    assert results[4:] == [b"8", b"10"]
    assert messages(results)[2:4] == ["Fussy.inference raised RuntimeError: three"] * 2


def test_two_failing_slices_keep_their_own_reasons() -> None:
    class Fussy(Doubler):
        def inference(self, data: list[int]) -> list[int]:
            raise RuntimeError(f"not {data[0]}")

    assert messages(staged(Fussy(), b"1", b"2", size=1)[0]) == [
        f"Fussy.inference raised RuntimeError: not {number}" for number in (1, 2)
    ]


def test_slices_of_one_batch_overlap() -> None:
    together = threading.Barrier(3, timeout=20)

    class Meeting(Doubler):
        def inference(self, data: list[int]) -> list[int]:
            together.wait()
            return super().inference(data)

    assert staged(Meeting(), b"1", b"2", b"3", size=1, threads=3)[0] == [b"2", b"4", b"6"]


@settings(max_examples=40, deadline=None)
@given(
    bodies=st.lists(st.sampled_from([b"1", b"22", b"bad", b"", b"5"]), min_size=1, max_size=20),
    size=st.integers(0, 7),
    threads=st.integers(1, 3),
)
def test_micro_batches_keep_every_answer_with_its_request(bodies: list[bytes], size: int, threads: int) -> None:
    results, listener = staged(Doubler(), *bodies, size=size, threads=threads)
    for body, result in zip(bodies, results, strict=True):
        if body in (b"bad", b""):
            assert isinstance(result, Failure)
        else:
            assert result == b"%d" % (2 * int(body))
    assert len(listener.ends) == 1


def test_a_stage_waits_when_the_next_one_is_full() -> None:
    decoded = 0
    proceed = threading.Event()
    reached = threading.Event()

    class Eager(Doubler):
        def decode(self, item: Any) -> int:
            nonlocal decoded
            decoded += 1
            if decoded == 4:  # one with inference, two between, one that waits for room
                reached.set()
            return int(item)

        def inference(self, data: list[int]) -> list[int]:
            assert proceed.wait(20)
            return data

    listener = Listener()
    pipeline = Threaded(program(Eager()), MicroBatching(micro_batch_size=1), None, nothing)
    pipeline.start()
    pipeline.submit(batch(1, [b"1"] * 10, listener))
    assert reached.wait(20)
    assert not listener.frames
    assert decoded == 4
    proceed.set()
    listener.wait()
    assert listener.results(1, 10) == [b"1"] * 10
