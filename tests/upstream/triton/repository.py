"""The model repository of the suite: Python models only, since those are what every tritonserver can run."""

import shutil
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "models/triton"
DATATYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64")
TYPED = "".join(
    f'input {{ name: "IN_{one}" data_type: TYPE_{one} dims: [ -1 ] optional: true }}\n'
    f'output {{ name: "OUT_{one}" data_type: TYPE_{one} dims: [ -1 ] }}\n'
    for one in DATATYPES
)
CONTROLS = "".join(
    f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} {form} }} }}\n'
    for name, form in (
        ("START", "int32_false_true: [ 0, 1 ]"),
        ("END", "int32_false_true: [ 0, 1 ]"),
        ("CORRID", "data_type: TYPE_UINT64"),
    )
)


def _one(datatype: str, dims: str, more: str = "", labels: str = "") -> str:
    label = f' label_filename: "{labels}"' if labels else ""
    return (
        f'input {{ name: "IN" data_type: TYPE_{datatype} dims: {dims} }}\n'
        f'output {{ name: "OUT" data_type: TYPE_{datatype} dims: {dims}{label} }}\n{more}'
    )


MODELS: dict[str, tuple[str, int, str]] = {  # name -> the source, most rows, the rest of the configuration
    "echo": ("echo", 4, _one("FP32", "[ -1 ]", labels="labels.txt")),
    "image": ("echo", 0, _one("FP32", "[ 3, -1 ]")),
    "strings": ("echo", 4, _one("STRING", "[ -1 ]")),
    "word": ("echo", 0, _one("STRING", "[ 1 ]")),
    "typed": ("echo", 0, TYPED),
    "reshaped": (
        "echo",
        4,
        'input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] reshape { shape: [ ] } }\n'
        'output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] reshape { shape: [ ] } }\n',
    ),
    "pair": (
        "pair",
        8,
        "".join(f'input {{ name: "{name}" data_type: TYPE_INT32 dims: [ 2 ] }}\n' for name in "AB")
        + "".join(f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ 2 ] }}\n' for name in ("SUM", "DIFFERENCE"))
        + "dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }\n"
        + 'parameters { key: "colour" value { string_value: "blue" } }\n',
    ),
    "behave": ("behave", 1, _one("STRING", "[ 1 ]")),
    "queued": (
        "behave",
        1,
        _one(
            "STRING",
            "[ 1 ]",
            "dynamic_batching { priority_levels: 2 default_priority_level: 2 default_queue_policy { "
            "default_timeout_microseconds: 60000000 allow_timeout_override: true max_queue_size: 1 } }\n",
        ),
    ),
    "many": ("many", 1, _one("INT32", "[ 1 ]", "model_transaction_policy { decoupled: true }\n")),
    "counter": (
        "counter",
        4,
        'input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "OUT" data_type: TYPE_INT64 dims: [ 4 ] }\n'
        f"sequence_batching {{ max_sequence_idle_microseconds: 60000000\n{CONTROLS}}}\n",
    ),
    "versions": ("echo", 0, _one("INT32", "[ -1 ]", "version_policy { specific { versions: [ 1, 3 ] } }\n")),
    "broken": ("broken", 0, _one("INT32", "[ -1 ]")),
}
VERSIONS = {"versions": (1, 2, 3)}


def write(folder: Path, names: tuple[str, ...]) -> None:
    """Write the models that are named into a repository."""
    for name in names:
        source, most, rest = MODELS[name]
        model = folder / name
        for version in VERSIONS.get(name, (1,)):
            (model / str(version)).mkdir(parents=True)
            shutil.copy(SOURCES / f"{source}.py", model / str(version) / "model.py")
        head = f'name: "{name}"\nbackend: "python"\nmax_batch_size: {most}\n'
        (model / "config.pbtxt").write_text(f"{head}{rest}instance_group {{ count: 1 kind: KIND_CPU }}\n")
        if "labels.txt" in rest:
            (model / "labels.txt").write_text("apple\nbanana\ncherry\n")
    (folder / "empty" / "1").mkdir(parents=True) if "broken" in names else None
