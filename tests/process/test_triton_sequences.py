"""Sequences from end to end: every answer is right for its sequence, whatever happens to the workers meanwhile."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.process.sequence_front import (
    Ask,
    Ports,
    Progress,
    Refused,
    Script,
    Sums,
    asking,
    in_sequence,
    put_onnx,
    put_python,
    put_torch,
    tritonserver,
)
from tests.process.voice_front import Voice, find_voice, put_voice
from tests.serving import kill

SEQUENCES, LENGTH = 100, 10
ALLOWED = ("must specify the START flag", "is over: the instance that kept its state is gone", "is never run twice")
CANDIDATES = "oldest { max_candidate_sequences: 100 max_queue_delay_microseconds: 1000 }"
Put = Callable[[Path, str], None]
MODELS: dict[str, tuple[Put, Callable[[int, int], Script]]] = {
    "direct": (partial(put_onnx, strategy="direct { }", count=2), Sums),
    "oldest": (partial(put_onnx, strategy=CANDIDATES), Sums),
    "alone": (partial(put_onnx, strategy=CANDIDATES, size=0), partial(Sums, shape=(1,))),
    "torch": (partial(put_torch, strategy="direct { }", count=2), Sums),
    "python": (partial(put_python, strategy="direct { }", count=3), Sums),
    "voice": (partial(put_voice, strategy=CANDIDATES), Voice),
}


def run_sequence(ask: Ask, script: Script, progress: Progress) -> int:
    """Send a sequence to its end, from START again after every refusal; gives how often it was begun."""
    step, begun = 0, 1
    while step < LENGTH:
        try:
            answer = ask(script.inputs(step), in_sequence(script.id, step, LENGTH))
        except Refused as error:
            assert error.status in (400, 500, 503) and any(words in error.words for words in ALLOWED), error
            assert error.status != 400 or step, error
            progress.refused(error)
            step, begun = 0, begun + 1
        else:
            script.check(step, answer)
            step += 1
            progress.answered()
    return begun


@pytest.mark.timeout(180)
@pytest.mark.parametrize("model", MODELS)
def test_a_hundred_interleaved_sequences_keep_their_state_while_workers_are_killed(tmp_path: Path, model: str) -> None:
    if model == "voice" and find_voice() is None:
        pytest.skip("silero-vad is not installed")
    put, script = MODELS[model]
    put(tmp_path / "models", model)
    with tritonserver(tmp_path / "models", tmp_path / "log") as server:
        draw = random.Random(1)
        killed: list[int] = []

        def strike() -> None:
            killed.append(draw.choice(server.workers()))
            kill(killed[-1])

        progress = Progress([150, 400, 650], strike)
        scripts = [script(number, LENGTH) for number in range(SEQUENCES)]
        together = threading.Barrier(SEQUENCES)

        def work(number: int) -> int:
            with asking(server, model, "grpc" if number % 2 else "http") as ask:
                together.wait(60)
                return run_sequence(ask, scripts[number], progress)

        with ThreadPoolExecutor(SEQUENCES) as pool:
            begun = list(pool.map(work, range(SEQUENCES)))

        assert len(set(killed)) == 3
        assert progress.refusals, "no sequence noticed that its worker was gone"
        assert max(begun) <= 2 * len(killed) + 2, "a sequence was refused more often than workers died"


# -- without trouble ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("sequences")
    models = folder / "models"
    put_onnx(models, "direct", "direct { }", idle=600)
    put_onnx(models, "short", "direct { }", size=1, idle=2)
    put_onnx(models, "full", "oldest { max_candidate_sequences: 1 }", idle=600)
    put_python(models, "python", "direct { }")
    with tritonserver(models, folder / "log") as server:
        yield server


def begin(server: Ports, model: str, *numbers: int) -> None:
    """Send the first request of each of these sequences."""
    for number in numbers:
        send(server, model, number, 0)


def send(server: Ports, model: str, number: int, step: int, over: str = "http", **more: Any) -> Sums:
    """Send one request of a sequence of four and see that its answer is right."""
    script = Sums(number, 4)
    with asking(server, model, over) as ask:
        script.check(step, ask(script.inputs(step), {**in_sequence(script.id, step, 4), **more}))
    return script


def sizes(server: Ports, model: str) -> dict[int, int]:
    """How many executions there were of each number of rows."""
    (found,) = server.get(f"/v2/models/{model}/stats")["model_stats"]
    return {row["batch_size"]: row["compute_infer"]["count"] for row in found["batch_stats"]}


@pytest.mark.parametrize("model", ["direct", "python"])
def test_rows_below_that_have_no_request_are_counted_as_triton_does(served: Ports, model: str) -> None:
    begin(served, model, 1, 2, 3)
    for step in (1, 2, 3):
        send(served, model, 3, step, "grpc")
    (found,) = served.get(f"/v2/models/{model}/stats")["model_stats"]

    assert sizes(served, model) == {1: 1, 2: 1, 3: 4}
    assert (found["inference_count"], found["execution_count"]) == (6, 6)
    for number in (1, 2):
        for step in (1, 2, 3):
            send(served, model, number, step)


def test_a_slot_is_free_again_after_a_while_and_its_next_sequence_begins_anew(served: Ports) -> None:
    begin(served, "short", 10)
    send(served, "short", 11, 0)  # waits until the one before has been silent for two seconds
    with pytest.raises(Refused, match=r"400: .*must specify the START flag on the first request of the sequence"):
        send(served, "short", 10, 1)
    send(served, "short", 11, 1)
    send(served, "short", 11, 0)  # cut off by itself, in the same slot
    for step in (1, 2, 3):
        send(served, "short", 11, step)


def test_more_sequences_than_candidates_wait_and_do_not_wait_for_ever(served: Ports) -> None:
    begin(served, "full", 20)
    with pytest.raises(Refused, match=r"503: .*timeout of the corresponding sequence has been expired"):
        send(served, "full", 21, 0, timeout=200_000)
    for step in (1, 2, 3):
        send(served, "full", 20, step)
    begin(served, "full", 21)


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_what_belongs_to_no_sequence_is_refused(served: Ports, over: str) -> None:
    script = Sums(30, 4)
    with asking(served, "direct", over) as ask:
        with pytest.raises(Refused, match=r"400: .*must specify a non-zero or non-empty correlation ID"):
            ask(script.inputs(0), {})
        with pytest.raises(Refused, match=r"400: .*for sequence \d+ to model 'direct' must specify the START flag"):
            ask(script.inputs(1), in_sequence(script.id, 1, 4))
        with pytest.raises(Refused, match=r"400: .*takes an integer as its correlation ID, got a string: 'a'"):
            ask(script.inputs(0), {"sequence_id": "a", "sequence_start": True})
        with pytest.raises(Refused, match=r"400: .*must specify batch-size 1 due to requirements of sequence batcher"):
            ask({"x": script.inputs(0)["x"].repeat(2, axis=0)}, in_sequence(script.id, 0, 4))
