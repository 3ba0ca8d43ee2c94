"""Messages that repeat themselves: what is taken from memory is what protobuf would have read."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import InvalidInput, ServingError
from shoal.frontend.fragments import Fragments
from shoal.frontend.grpc import repeats as module
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.grpc.repeats import MOST, SELDOM, SMALL, WASTED, Repeated, Repeats
from shoal.frontend.kserve.memory import Regions
from shoal.wire.memory import Arena, ArenaBlock
from tests.unit.frontend.kserve.bed import plan_of, spec

PLAN = plan_of(spec("A", dims=[-1]), spec("B", dims=[-1]), rows=0, outputs=[spec("OUT")])
REGIONS = Regions(is_on=False, lend=lambda _: None, largest=64, folder=Path("/nowhere"))


def message(*tensors: bytes, id: str = "", outputs: tuple[str, ...] = (), names: str = "AB") -> Any:
    made = messages.ModelInferRequest(model_name="m", id=id, raw_input_contents=list(tensors))
    for name, tensor in zip(names, tensors, strict=False):
        made.inputs.add(name=name, datatype="UINT8", shape=[len(tensor)])
    for output in outputs:
        made.outputs.add(name=output)
    return made


def said(repeats: Repeats, text: bytes | Fragments, client: int = 1) -> tuple[object, ...]:
    """Everything that is read of a message, or why it is refused."""
    try:
        opened = repeats.open(text, client)
        asked = opened.asked(PLAN, REGIONS)
    except ServingError as error:
        return type(error), str(error)
    tensors = [(each.name, each.datatype, list(each.shape), bytes(each.view)) for each in asked.tensors]
    wishes = None if asked.wishes is None else [(wish.name, wish.is_binary) for wish in asked.wishes.values()]
    return opened.model_name, opened.model_version, opened.id, asked.id, tensors, wishes, asked.controls


def is_repeated(repeats: Repeats, text: bytes, client: int = 1) -> bool:
    return isinstance(repeats.open(text, client), Repeated)


MESSAGES = st.builds(
    message,
    st.binary(min_size=0, max_size=9),
    st.binary(min_size=0, max_size=9) | st.sampled_from([b"\x3a\x02ab", bytes(SMALL + 1)]),
    id=st.sampled_from(["", "x", ":\x02ab"]),
    outputs=st.sampled_from([(), ("OUT",)]),
    names=st.sampled_from(["AB", "BA", "A"]),
).map(messages.ModelInferRequest.SerializeToString)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES | st.binary(max_size=12), max_size=8), st.integers(0, 40), st.integers(0, 255))
def test_whatever_came_before_a_message_says_the_same(texts: list[bytes], place: int, byte: int) -> None:
    repeats = Repeats()
    for text in texts:
        changed = text[:place] + bytes([byte]) + text[place + 1 :]
        for each in (text, changed, text):
            assert said(repeats, each) == said(Repeats(), each)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES | st.binary(max_size=12), max_size=8), st.integers(1, 40), st.integers(0, 255))
def test_in_pieces_a_message_says_the_same(texts: list[bytes], step: int, byte: int) -> None:
    repeats = Repeats()
    for text in texts:
        changed = text[:step] + bytes([byte]) + text[step + 1 :]
        for each in (text, changed, text):
            pieces = Fragments([each[at : at + step] for at in range(0, len(each), step)])
            assert said(repeats, pieces) == said(Repeats(), each)


def test_large_tensors_in_pieces_are_put_where_their_worker_reads_them() -> None:
    arena = Arena(2**22)
    regions = Regions(is_on=False, lend=arena.lend, largest=2**20, folder=Path("/nowhere"))
    repeats = Repeats()
    first, second = bytes(range(256)) * 400, bytes(reversed(range(256))) * 600
    text = message(first, second).SerializeToString()
    said(repeats, text)

    asked = repeats.open(Fragments([text[at : at + 4099] for at in range(0, len(text), 4099)]), 1).asked(PLAN, regions)

    assert [isinstance(tensor.data, ArenaBlock) for tensor in asked.tensors] == [True, True]
    assert [bytes(tensor.view) for tensor in asked.tensors] == [first, second]
    asked.release()
    assert arena.lent == 0
    arena.close()


def test_the_same_but_for_its_tensors_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats = Repeats()
    said(repeats, message(b"one", b"22", outputs=("OUT",)).SerializeToString())
    monkeypatch.setattr(module, "parse", None)

    read = said(repeats, message(b"two", b"33", outputs=("OUT",)).SerializeToString())

    assert read[4] == [("A", "UINT8", [3], b"two"), ("B", "UINT8", [2], b"33")]


@pytest.mark.parametrize(
    "other",
    [
        message(b"one", b"22", id="y"),
        message(b"on", b"222"),
        message(b"one", b"22", names="BA"),
        message(b"one", b"22", outputs=("OUT",)),
    ],
)
def test_what_differs_elsewhere_is_read(other: Any) -> None:
    repeats = Repeats()
    said(repeats, message(b"one", b"22", id="x").SerializeToString())

    assert not is_repeated(repeats, other.SerializeToString())


def test_clients_do_not_know_each_others_messages() -> None:
    repeats = Repeats()
    text = message(b"one", b"22").SerializeToString()
    said(repeats, text, client=1)

    assert is_repeated(repeats, text, client=1)
    assert not is_repeated(repeats, text, client=2)


def test_parameters_and_tensors_before_the_rest_are_left_to_protobuf() -> None:
    told = message(b"one", b"22")
    told.parameters["priority"].int64_param = 1
    shared = message(b"one", b"22")
    shared.outputs.add(name="OUT").parameters["classification"].int64_param = 1
    first = messages.ModelInferRequest(raw_input_contents=[b"one", b"22"]).SerializeToString()
    last = message(b"one", b"22")
    del last.raw_input_contents[:]
    for text in (told.SerializeToString(), shared.SerializeToString(), first + last.SerializeToString()):
        repeats = Repeats()
        said(repeats, text)
        assert not is_repeated(repeats, text)


def test_an_output_that_is_gone_is_still_refused() -> None:
    repeats = Repeats()
    text = message(b"one", b"22", outputs=("OUT",)).SerializeToString()
    said(repeats, text)
    other = plan_of(spec("A", dims=[-1]), spec("B", dims=[-1]), rows=0, outputs=[spec("NEW")])

    with pytest.raises(InvalidInput, match="unexpected inference output 'OUT'"):
        repeats.open(text, 1).asked(other, REGIONS)


def test_what_is_remembered_is_bounded_and_seldom_for_nothing() -> None:
    repeats = Repeats()
    for client in range(MOST + 2):
        said(repeats, message(b"one", b"22").SerializeToString(), client)
    assert len(repeats._known) <= MOST
    repeats = Repeats()
    for number in range(WASTED + 4 * SELDOM):
        said(repeats, message(b"one", b"22", id=f"{number:04}").SerializeToString(), number)
    assert len(repeats._known) == WASTED + 4
