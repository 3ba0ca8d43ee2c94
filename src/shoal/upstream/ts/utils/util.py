"""Small things that handlers share: labels, YAML files, names of compilers, and the error a handler answers with."""

import enum
import functools
import inspect
import json
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import yaml

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

CLEANUP_REGEX = re.compile(r"<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")  # tags and entities of HTML


class PredictionException(Exception):
    """What a handler raises to answer every request of a batch with this message and status."""

    def __init__(self, message: str, error_code: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


class PT2Backend(enum.StrEnum):
    """The compilers that `pt2` in model-config.yaml may name."""

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"
    NVFUSER = "nvfuser"
    AOT_NVFUSER = "aot_nvfuser"
    AOT_CUDAGRAPHS = "aot_cudagraphs"
    OFI = "ofi"
    FX2TRT = "fx2trt"
    ONNXRT = "onnxrt"
    IPEX = "ipex"
    TORCHXLA_TRACE_ONCE = "torchxla_trace_once"
    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    HPU_BACKEND = "hpu_backend"


def check_valid_pt2_backend(backend: str) -> bool:
    """Whether `torch.compile` may be asked for this backend; a name that is not known is logged."""
    if backend in [known.value for known in PT2Backend]:
        return True
    logger.warning("%s is not a supported backend", backend)
    return False


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """The classes that a module defines itself, in order; only those below `parent_class`, if one is given."""
    found = [value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__]
    return [each for each in dict.fromkeys(found) if parent_class is None or issubclass(each, parent_class)]


def load_label_mapping(mapping_file_path: str) -> dict[str, str] | None:
    """Labels by class number, as `index_to_name.json` gives them; None, with a warning, where there is no such file."""
    path = Path(mapping_file_path)
    if not path.is_file():
        logger.warning("'%s' is missing. Inference output will not include class name.", path)
        return None
    mapping = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(mapping, dict):
        raise ValueError(f'{path} has to hold one object, {{"<class number>": "<label>", ...}}')
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        mapping = {str(number): name for number, name in enumerate(names)}
    return {number: _label(value, number, path) for number, value in mapping.items()}


def _label(value: Any, number: str, path: Path) -> str:
    if isinstance(value, list) and value:
        value = value[-1]  # ["n02123045", "tabby"]: what people read comes last
    if not isinstance(value, str):
        raise ValueError(f"{path}: the label of class {number} has to be a string or a list of strings, not {value!r}")
    return value


def map_class_to_label(
    probs: list[Any], mapping: dict[str, str] | None = None, lbl_classes: Sequence[Sequence[Any]] | None = None
) -> list[dict[str, Any]]:
    """One `{label: probability}` a row; labels are class numbers where there is no mapping.

    `lbl_classes` says, row by row, which class each probability belongs to; without it that is its position.
    """
    if not isinstance(probs, list):
        raise TypeError(f"probabilities have to be a list of rows, not {type(probs).__name__}: call tolist() first")
    classes = lbl_classes if lbl_classes is not None else [range(len(row)) for row in probs]
    return [_labelled(numbers, row, mapping) for numbers, row in zip(classes, probs, strict=True)]


def _labelled(numbers: Sequence[Any], values: Sequence[Any], mapping: dict[str, str] | None) -> dict[str, Any]:
    pairs = zip(map(str, numbers), values, strict=False)  # a row may hold more values than it names classes
    return {number if mapping is None else mapping[number]: value for number, value in pairs}


def get_yaml_config(yaml_file_path: str) -> Any:
    """What a YAML file holds."""
    with open(yaml_file_path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def deprecated(
    version: str, replacement: str = "", klass: type[Warning] = PendingDeprecationWarning
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a function as on its way out: every call warns, and names what to use instead."""

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def warned(*args: P.args, **kwargs: P.kwargs) -> T:
            text = f"{function.__name__} is deprecated in {version} and moved to {replacement}"
            warnings.warn(text, klass, stacklevel=2)
            return function(*args, **kwargs)

        return warned

    return mark
