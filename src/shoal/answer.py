"""What a model's answer of tensors says before their bytes."""

from typing import Any

import msgspec


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a tensor besides its bytes."""

    name: str
    datatype: str
    shape: list[int]
    size: int  # bytes


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What stands before the bytes of an answer's tensors, in their order."""

    outputs: list[Head]
    parameters: dict[str, Any] = {}
    error: str = ""  # of a decoupled model, inside a stream
    code: str = ""


encode_answer = msgspec.msgpack.Encoder().encode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
