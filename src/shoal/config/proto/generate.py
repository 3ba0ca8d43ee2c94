"""Write `model_config_pb2.py` from its `.proto` file: `python -m shoal.config.proto.generate`. Needs grpcio-tools."""

from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

HERE = Path(__file__).parent
ROOT = HERE.parents[2]  # the folder that the names of files, as imports say them, begin at
MODULE = '''"""The messages of model_config.proto, in a pool of their own; written by generate.py, not by hand.

In the pool that a process shares, the names would clash with those of client code generated from the same messages.
"""

from base64 import b64decode

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

DESCRIPTOR = DescriptorPool().AddSerializedFile(
    b64decode("""
{text}
""")
)
ModelConfig = GetMessageClass(DESCRIPTOR.message_types_by_name["ModelConfig"])
'''


def generate() -> str:
    """Give the text of the module."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        if protoc.main(["protoc", f"-I{ROOT}", f"--descriptor_set_out={out}", str(HERE / "model_config.proto")]):
            raise SystemExit(1)  # protoc has said why
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    return MODULE.format(text="\n".join(wrap(b64encode(file.SerializeToString()).decode(), 118)))


if __name__ == "__main__":
    (HERE / "model_config_pb2.py").write_text(generate())
