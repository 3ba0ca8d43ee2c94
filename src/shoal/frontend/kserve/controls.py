"""What a request says beside its tensors: how it is scheduled and answered, and what its model is told."""

from typing import Any

import msgspec

from shoal.core.request import InSequence


class Controls(msgspec.Struct, frozen=True):
    """What the parameters of a request say."""

    parameters: dict[str, Any] = {}  # those that the model itself is told
    sequence: InSequence | None = None
    priority: int = 0  # 0: the default
    timeout: int = 0  # microseconds; 0: none
    is_binary: bool = False  # outputs that are not listed come as bytes
    wants_final: bool = False  # an empty answer says that there are no more


NO_CONTROLS = Controls()


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker is told of a request beside its tensors; it travels as the header `v2`."""

    id: str
    parameters: dict[str, Any]
    outputs: list[str]  # empty: all
    sequence: InSequence | None = None
    timeout: int = 0
    priority: int = 0


encode_told = msgspec.msgpack.Encoder().encode
