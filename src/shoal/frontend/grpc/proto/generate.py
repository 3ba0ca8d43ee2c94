"""Write the `*_pb2` modules from the `.proto` files: `python -m shoal.frontend.grpc.proto.generate`.

It needs grpcio-tools. A module holds the descriptor and asks the pool for the classes; a `.pyi` beside it says what
fields they have.
"""

import sys
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

HERE = Path(__file__).parent
ROOT = HERE.parents[3]  # the folder that the names of files, as imports say them, begin at
KNOWN = Path(protoc.__file__).parent / "_proto"  # google/protobuf/*.proto
FILES = ("status", "inference", "management", "open_inference", "grpc_service", "health")  # each after those it imports


def generate() -> dict[str, str]:
    """Give the text of every module and stub, by file name."""
    sources = [str(HERE / f"{name}.proto") for name in FILES]
    with TemporaryDirectory() as folder:
        out = Path(folder)
        flags = [f"-I{ROOT}", f"-I{KNOWN}", f"--descriptor_set_out={out / 'set'}", f"--pyi_out={out}"]
        if protoc.main(["protoc", *flags, *sources]):
            raise SystemExit(1)  # protoc has said why
        files = FileDescriptorSet.FromString((out / "set").read_bytes()).file
        stubs = {path.name: path.read_text() for path in out.rglob("*.pyi")}
    return {Path(file.name).stem + "_pb2.py": _module(file) for file in files} | stubs


def _module(file: FileDescriptorProto) -> str:
    name = Path(file.name).name
    needed = [Path(path).stem + "_pb2" for path in file.dependency if path.startswith("shoal/")]
    lines = [f'"""The messages of {name}; written by generate.py, not by hand."""', ""]
    lines += [f"import shoal.frontend.grpc.proto.{module}  # noqa: F401" for module in needed]
    lines += ["from shoal.frontend.grpc.proto.pool import messages", "", '_messages = messages("""']
    lines += wrap(b64encode(file.SerializeToString()).decode(), 118)
    lines += ['""")']
    lines += [f'{message.name} = _messages["{message.name}"]' for message in file.message_type]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write them beside the `.proto` files."""
    for name, text in generate().items():
        (HERE / name).write_text(text)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
