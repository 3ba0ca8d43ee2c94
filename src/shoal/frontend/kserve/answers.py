"""An answer's tensors in the forms a client asked for: JSON, bytes behind the JSON, classes, or its own memory."""

from collections.abc import Iterator
from math import prod
from typing import Any

import msgspec

from shoal.answer import Answer, Head
from shoal.errors import HandlerFailed
from shoal.frontend.kserve.asked import Asked, Wish
from shoal.frontend.kserve.classify import classify
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.status import STATUSES
from shoal.frontend.kserve.values import NOT_IN_JSON, dump, to_json, to_list
from shoal.payload import Result
from shoal.tensor import ANSWER, WIDTHS, split

_encode = msgspec.json.Encoder().encode
Outputs = list[tuple[Head, memoryview, Wish | None]]


def read(result: Result) -> tuple[Answer, list[memoryview]]:
    """Take a model's answer apart; HandlerFailed where it is none, or tells of an error."""
    if result.content_type != ANSWER:
        raise HandlerFailed(f"the model answered with {result.content_type or 'nothing'!r} instead of tensors")
    try:
        answer, buffers = split(result.body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise HandlerFailed(f"the model's answer cannot be read: {error}") from None
    if answer.error:
        raise HandlerFailed(answer.error, status=STATUSES.get(answer.code, 500))
    for place, head in enumerate(answer.outputs):
        data = buffers[place]
        width = WIDTHS.get(head.datatype)
        if width is None or len(data) != head.size or (width and head.size != width * prod(head.shape)):
            raise HandlerFailed(
                f"the model's output '{head.name}' of {len(data)} bytes is no {head.datatype} of shape {head.shape}"
            )
    return answer, buffers


def outputs_of(plan: Plan, asked: Asked, answer: Answer, buffers: list[memoryview]) -> Outputs:
    """Give the outputs that were asked for, classified where that was; those for a client's own memory are put there.

    An output in a client's memory has no bytes left to send.
    """
    wishes = asked.wishes
    found: Outputs = []
    for place, head in enumerate(answer.outputs):
        data = buffers[place]
        wish = wishes.get(head.name) if wishes is not None else None
        if wishes is not None and wish is None:
            continue
        if wish is not None and wish.classes:
            labels = plan.outputs[head.name].labels
            head, packed = classify(head, data, wish.classes, labels, has_rows=bool(plan.rows))
            data = memoryview(packed)
        if wish is not None and wish.window is not None:
            wish.window.write(head.name, data)
            data = memoryview(b"")
        found.append((head, data, wish))
    return found


def write(plan: Plan, asked: Asked, result: Result) -> tuple[list[bytes | memoryview], int]:
    """Write an answer: its JSON and the bytes behind it, and how many of them are the JSON; 0: all of them."""
    answer, buffers = read(result)
    is_binary = asked.controls.is_binary
    texts, tail, size = [], [], 0
    for head, data, wish in outputs_of(plan, asked, answer, buffers):
        start = b'{"name":%b,"datatype":"%b","shape":%b' % (
            _encode(head.name),
            head.datatype.encode(),
            _encode(head.shape),
        )
        if wish is not None and wish.window is not None:
            texts.append(start + b"}")
        elif wish.is_binary if wish is not None else is_binary:
            texts.append(b'%b,"parameters":{"binary_data_size":%d}}' % (start, len(data)))
            tail.append(data)
            size += len(data)
        else:
            texts.append(b'%b,"data":%b}' % (start, _values(head, data)))
    text = b'{%b%b%b,"outputs":[%b]}' % (
        b'"id":%b,' % _encode(asked.id) if asked.id else b"",
        plan.opening,
        b',"parameters":%b' % dump(answer.parameters) if answer.parameters else b"",
        b",".join(texts),
    )
    return [text, *tail], len(text) if size else 0


def write_generated(plan: Plan, asked: Asked, result: Result) -> bytes:
    """Write the answer of a generation: one object, a key for each output, sorted."""
    answer, buffers = read(result)
    return dump(dict(sorted(_generated(plan, asked, answer, buffers))))


def _generated(plan: Plan, asked: Asked, answer: Answer, buffers: list[memoryview]) -> Iterator[tuple[str, Any]]:
    yield "model_name", plan.model.name
    yield "model_version", plan.model.version
    if asked.id:
        yield "id", asked.id
    yield from answer.parameters.items()
    for head, data in zip(answer.outputs, buffers, strict=True):
        if head.datatype in NOT_IN_JSON:
            raise _no_json(head)
        values = to_list(head.datatype, data)
        yield head.name, values[0] if len(values) == 1 else values


def _values(head: Head, data: memoryview) -> bytes:
    if head.datatype in NOT_IN_JSON:
        raise _no_json(head)
    return to_json(head.datatype, data)


def _no_json(head: Head) -> HandlerFailed:
    words = f"sending {head.datatype} data via JSON is not supported. Please use the binary data format for output"
    return HandlerFailed(f"{words} '{head.name}'", status=400)
