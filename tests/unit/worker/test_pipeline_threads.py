import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.model import MicroBatching
from shoal.wire.messages import Failure
from shoal.worker.handler import Context
from shoal.worker.pipeline import BRIEF, FEW, Threaded
from tests.unit.worker.making import STAGES, Doubler, Listener, batch, messages, nothing, program, staged


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


def test_the_context_speaks_of_who_is_left_in_every_stage_and_then_of_nobody() -> None:
    seen: list[tuple[str, str, list[str]]] = []

    class Asking(Doubler):
        def initialize(self, context: Context) -> None:
            self.context = context

        def note(self, stage: str) -> None:
            seen.append((stage, threading.current_thread().name, list(self.context.request_ids.values())))

        def decode(self, item: Any) -> int:
            self.note("decode")
            return super().decode(item)

        def inference(self, data: list[int]) -> list[int]:
            self.note("inference")
            return super().inference(data)

        def encode(self, output: int) -> str:
            self.note("encode")
            return super().encode(output)

    made = program(Asking())
    listener, is_done = Listener(), threading.Event()
    pipeline = Threaded(made, MicroBatching(), None, lambda batch: is_done.set())
    pipeline.start()
    for number in (1, 2):  # the second stays on one thread: how long the last stage takes is known
        is_done.clear()
        seen.clear()
        pipeline.submit(batch(number, [b"bad", b"4"], listener))
        assert is_done.wait(20)
        listener.wait()
        both = [f"{number}-0", f"{number}-1"]
        assert [(stage, ids) for stage, _, ids in seen] == [
            ("decode", both),
            ("decode", both),
            ("inference", both[1:]),
            ("encode", both[1:]),
        ]
    assert {thread for _, thread, _ in seen} == {"inference-0"}
    assert isinstance(made.context, Context)
    until = time.monotonic() + 20
    while len(made.context.requests) and time.monotonic() < until:
        time.sleep(0.001)
    assert len(made.context.requests) == 0


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


class Watched(Doubler):
    """Notes which thread each stage ran on, and how often it ran at once at most."""

    def __init__(self, slow: str = "") -> None:
        self.slow = slow
        self.threads: dict[str, list[str]] = {stage: [] for stage in STAGES}
        self.most = dict.fromkeys(STAGES, 0)
        self._now = dict.fromkeys(STAGES, 0)
        self._lock = threading.Lock()

    @contextmanager
    def _running(self, stage: str) -> Iterator[None]:
        with self._lock:
            self.threads[stage].append(threading.current_thread().name)
            self._now[stage] += 1
            self.most[stage] = max(self.most[stage], self._now[stage])
        time.sleep(2 * BRIEF if stage == self.slow else 0.0)
        yield
        with self._lock:
            self._now[stage] -= 1

    def preprocess(self, data: list[dict[str, Any]]) -> list[int]:
        with self._running("preprocess"):
            return [int(row["body"]) for row in data]

    def inference(self, data: list[int]) -> list[int]:
        with self._running("inference"):
            return super().inference(data)

    def postprocess(self, data: list[int]) -> list[str]:
        with self._running("postprocess"):
            return [str(number) for number in data]


def one_after_the_other(*sizes: int, brief: float = math.inf) -> Watched:
    listener, target = Listener(), Watched()
    pipeline = Threaded(program(target), MicroBatching(), None, nothing)
    pipeline.brief = brief
    pipeline.start()
    for number, size in enumerate(sizes, 1):
        pipeline.submit(batch(number, [b"3"] * size, listener))
        listener.wait()
        assert listener.results(number, size) == [b"6"] * size
    return target


def test_a_few_requests_with_nobody_else_there_stay_on_the_thread_of_inference() -> None:
    seen = one_after_the_other(1, 1, FEW)
    assert seen.threads["preprocess"] == ["inference-0"] * 3
    assert seen.threads["inference"] == ["inference-0"] * 3
    # how long the last stage takes is known after the first
    assert seen.threads["postprocess"] == ["postprocess-0", "inference-0", "inference-0"]


def test_many_requests_are_read_on_the_thread_made_for_it() -> None:
    assert one_after_the_other(FEW + 1).threads["preprocess"] == ["preprocess-0"]


def test_the_next_inference_does_not_wait_for_a_long_postprocess() -> None:
    assert one_after_the_other(1, 1, 1, brief=0.0).threads["postprocess"] == ["postprocess-0"] * 3


def test_a_brief_postprocess_is_handed_on_where_somebody_waits_for_inference() -> None:
    inside, release = threading.Event(), threading.Event()

    class Held(Watched):
        def inference(self, data: list[int]) -> list[int]:
            if data == [5]:
                inside.set()
                assert release.wait(20)
            return super().inference(data)

    listener = Listener()
    target = Held()
    pipeline = Threaded(program(target), MicroBatching(), None, nothing)
    pipeline.brief = math.inf
    pipeline.start()
    pipeline.submit(batch(1, [b"1"], listener))  # tells how long the last stage takes
    listener.wait()
    pipeline.submit(batch(2, [b"5"], listener))
    assert inside.wait(20)
    pipeline.submit(batch(3, [b"7"], listener))
    release.set()
    listener.wait(2)
    assert target.threads["postprocess"][1] == "postprocess-0"
    assert target.threads["preprocess"] == ["inference-0", "inference-0", "preprocess-0"]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 2 * FEW), min_size=1, max_size=12),
    pauses=st.lists(st.booleans(), min_size=12, max_size=12),
    threads=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)),
    slow=st.sampled_from(["", *STAGES]),
)
def test_no_stage_runs_more_often_at_once_than_it_has_threads(
    sizes: list[int], pauses: list[bool], threads: tuple[int, int, int], slow: str
) -> None:
    listener, target = Listener(), Watched(slow)
    allowed = dict(zip(STAGES, threads, strict=True))
    pipeline = Threaded(program(target), MicroBatching(parallelism=allowed), None, nothing)  # type: ignore[arg-type]
    pipeline.start()
    running = 0
    for number, (size, is_waited_for) in enumerate(zip(sizes, pauses, strict=False), 1):
        pipeline.submit(batch(number, [b"%d" % number] * size, listener))
        running += 1
        if is_waited_for:
            listener.wait(running)
            running = 0
    listener.wait(running)
    for number, size in enumerate(sizes, 1):
        assert listener.results(number, size) == [b"%d" % (2 * number)] * size
    assert all(target.most[stage] <= allowed[stage] for stage in STAGES)
    assert {name.split("-")[0] for name in target.threads["inference"]} == {"inference"}
