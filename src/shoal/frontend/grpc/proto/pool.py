"""The descriptors of our messages, in a pool of their own.

In the pool that a process shares, the names would clash with those of client code generated from the same services,
should a program hold both: a test that starts a server and calls it, for one. Descriptors instead of protoc's Python
code also leave the version of protobuf free.
"""

from base64 import b64decode
from typing import Any

from google.protobuf import any_pb2, empty_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_pool = DescriptorPool()
for _known in (any_pb2, empty_pb2):
    _pool.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)


def messages(descriptor: str) -> dict[str, Any]:
    """Add a file to the pool, given in base64 and after those it imports; the classes of its messages, by name."""
    file = _pool.AddSerializedFile(b64decode(descriptor))
    return {name: GetMessageClass(kind) for name, kind in file.message_types_by_name.items()}
