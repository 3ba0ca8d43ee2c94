from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from shoal.wire import messages
from shoal.wire.messages import (
    Answered,
    Ask,
    Begun,
    CallOff,
    Cancel,
    Command,
    Ended,
    Exited,
    Failure,
    Fork,
    Forked,
    Hello,
    Item,
    Load,
    Loaded,
    Measure,
    Measured,
    Order,
    PartHead,
    Piece,
    Pieces,
    Proved,
    Report,
    Run,
    Stop,
    TemplateWord,
    Told,
    Unloadable,
    Used,
    Warmed,
    Wire,
    decode_command,
    decode_report,
    decode_template_word,
    encode,
)

Decode = Callable[[bytes], Any]
FAILURE = Failure("handler", "it raised", 507, "Traceback\n  line 1")
ITEM = Item([PartHead("body", "image/jpeg", 3), PartHead("größe", "", 9, 4096)], b"\xff\x00", [(b"a", b"\xfe")])
COMMANDS = [
    Load({"name": "m", "parameters": {"depth": [1, 2.5, None]}}, "m-1.0-0", True, 4096),
    Load({"name": "m"}, "m-1.0-0", True, 4096, False),
    Run(2**40, 1, [ITEM, Item([])]),
    Cancel(3, 0),
    Stop(),
    Told(1, False),
    Told(2, True, True, FAILURE),
]
REPORTS = [
    Hello(1, 4242),
    Loaded("Resnet", 2, True),
    Unloadable("no such module", "Traceback", True),
    Answered(7, [0, 5], ["text/plain"], (0.1, 0.2, 0.3)),
    Pieces(
        7,
        [
            Piece(1, False, 3),
            Piece(0, True, 0, "a/b", 201, "Made", [("x", "y")]),
            Piece(2, True, 0, "", 0, "", [], FAILURE),
        ],
    ),
    Begun(7),
    Ended(7, (0.0, 0.0, 0.0), FAILURE),
    Ended(8, (0.0, 0.0, 0.0)),
    Measured([Measure("m", "Milliseconds", "GAUGE", 1.5, [("Level", "Model")], "a,b")]),
    Proved(True),
    Proved(False, "it answers in pieces"),
    Used(2**33),
    Ask(1, "m", "", [PartHead("x", "tensor/FP32;2", 8)], ["y"]),
    Ask(2, "m", "3", [], [], "id", ("série", True, False), 5, {"a": 1, "b": True, "c": "d", "e": 0.5}, True, True),
    Order(3, "load", "m", "", "{}", {"file:1/model.py": b"\xff"}),
    Order(4, "unload", "m", with_dependents=True),
    CallOff(2),
]
WORDS = [Fork("w"), Forked("w", 7), Exited(7, 9), Warmed(["torch"])]
CASES: list[tuple[Wire, Decode]] = [
    *((message, decode_command) for message in COMMANDS),
    *((message, decode_report) for message in REPORTS),
    *((message, decode_template_word) for message in WORDS),
]


@pytest.mark.parametrize(("message", "decode"), CASES)
def test_a_message_arrives_as_it_was_sent(message: Wire, decode: Decode) -> None:
    assert decode(encode(message)) == message


def test_every_message_of_the_three_unions_is_tried_here() -> None:
    tried = {type(message) for message, _ in CASES}

    assert tried == {*get_args(Command), *get_args(Report), *get_args(TemplateWord)}


def test_every_message_has_a_tag_of_its_own() -> None:
    kinds = [*get_args(Command), *get_args(Report), *get_args(TemplateWord)]
    tags = [kind.__struct_config__.tag for kind in kinds]

    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize(("message", "decode"), CASES)
def test_a_message_with_a_field_too_many_is_refused(message: Wire, decode: Decode) -> None:
    fields = msgspec.msgpack.decode(encode(message))
    full = len(msgspec.structs.fields(message)) + 1
    fields += [None] * (full - len(fields))

    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode([*fields, "more"]))


@pytest.mark.parametrize("decode", [decode_command, decode_report, decode_template_word])
@pytest.mark.parametrize("content", [["dance"], ["dance", 1], [], {"type": "stop"}, "stop", None, [3, 4]])
def test_an_unknown_message_is_refused(decode: Decode, content: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(content))


@pytest.mark.parametrize("decode", [decode_command, decode_report, decode_template_word])
@pytest.mark.parametrize("content", [b"", b"\xc1", encode(Stop())[:-1], encode(Stop()) + b"\x00"])
def test_something_that_is_no_message_is_refused(decode: Decode, content: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(content)


def test_nobody_may_say_what_is_the_others_to_say() -> None:
    for message in COMMANDS:
        with pytest.raises(msgspec.ValidationError):
            decode_report(encode(message))
    for report in REPORTS:
        with pytest.raises(msgspec.ValidationError):
            decode_command(encode(report))


@pytest.mark.parametrize(
    "content",
    [
        ["run", "1", 0, []],
        ["run", 1, 0, [[[["body", "", "3"]]]]],
        ["cancel", 1],
        ["cancel", None, 1],
        ["load", [], "w"],
    ],
)
def test_a_field_of_the_wrong_kind_or_missing_is_refused(content: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_command(msgspec.msgpack.encode(content))


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Cancel(1, 2).batch = 3  # type: ignore[misc]  # the point


def test_every_message_refuses_what_it_does_not_know() -> None:
    kinds = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Wire)]

    assert len(kinds) > 15
    for kind in kinds:
        assert kind.__struct_config__.forbid_unknown_fields, kind
        assert kind.__struct_config__.frozen, kind
        assert kind.__struct_config__.array_like, kind
