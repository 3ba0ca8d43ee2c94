"""BaseHandler: what the other handlers, and most of those that users write, are derived from."""

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.profiler import profile, record_function

from shoal.upstream.ts.handler_utils.timer import timed
from shoal.upstream.ts.utils import profiling
from shoal.upstream.ts.utils.compiling import compiled, wants_aot
from shoal.upstream.ts.utils.sessions import is_session, run_session, setup_ort_session
from shoal.upstream.ts.utils.util import list_classes_from_module, load_label_mapping
from shoal.upstream.ts.utils.weights import load_exported, load_weights
from shoal.worker import fresh

__all__ = ["BaseHandler", "setup_ort_session"]

logger = logging.getLogger(__name__)


class BaseHandler:
    """Loads a model in `initialize` and answers a batch in `handle`: preprocess, inference, postprocess."""

    # The fields are set here as well, for handlers that do not call this class's __init__ from their own.
    model: Any = None
    mapping: dict[str, str] | None = None
    device: Any = None
    initialized: bool | None = False
    context: Any = None
    model_pt_path: str | None = None
    manifest: Any = None
    map_location: str | None = None
    explain: bool = False
    target: Any = 0
    profiler_args: dict[str, Any] | None = None
    model_yaml_config: Any = None

    def __init__(self) -> None:
        self.model = None
        self.mapping = None
        self.device = None
        self.initialized = False
        self.context = None
        self.model_pt_path = None
        self.manifest = None
        self.map_location = None
        self.explain = False
        self.target = 0
        self.profiler_args = {}

    def initialize(self, context: Any) -> None:
        """Load the model that the manifest names onto the device of this worker."""
        properties = context.system_properties
        self.map_location, self.device = _device(properties.get("gpu_id"))
        self.manifest = context.manifest
        self.model_yaml_config = getattr(context, "model_yaml_config", None) or {}
        described = (self.manifest or {}).get("model") or {}
        model_dir = str(properties.get("model_dir"))
        serialized = described.get("serializedFile")
        self.model_pt_path = os.path.join(model_dir, serialized) if serialized else None

        if model_file := described.get("modelFile"):
            self.model = self._load_pickled_model(model_dir, model_file, self.model_pt_path)
            self.model.to(self.device)
            self.model.eval()
        else:
            self.model = self._load_by_suffix(self.model_pt_path)
        self.model = compiled(self.model, self.model_yaml_config.get("pt2"))
        self.mapping = load_label_mapping(os.path.join(model_dir, "index_to_name.json"))
        self.initialized = True

    def _load_by_suffix(self, path: str | None) -> Any:
        suffix = os.path.splitext(path or "")[1]
        if path is not None and suffix == ".pt":
            model = self._load_torchscript_model(path)
            model.eval()
            return model
        if path is not None and suffix == ".onnx":
            return setup_ort_session(path, self.map_location)
        if path is not None and suffix in (".so", ".pt2") and self._use_torch_export_aot_compile():
            return self._load_torch_export_aot_compile(path)
        if path is not None and suffix == ".pt2":
            return self._load_exported_program(path)
        raise RuntimeError(
            "No model weights could be loaded: without a modelFile the serializedFile has to be .pt (TorchScript), "
            ".pt2 (exported program), .onnx, or .so with `pt2: {export: {aot_compile: true}}`; it is "
            + (os.path.basename(path) if path else "not given")
        )

    def _load_torchscript_model(self, model_pt_path: str) -> Any:
        return torch.jit.load(model_pt_path, map_location=self.device)  # type: ignore[no-untyped-call]

    def _load_exported_program(self, model_pt_path: str) -> Any:
        program = load_exported(model_pt_path)
        if self.device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, self.device)
        return program.module()

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Any:
        if model_so_path.endswith(".pt2"):
            return torch._inductor.aoti_load_package(model_so_path)
        return torch._export.aot_load(model_so_path, str(self.device))

    def _use_torch_export_aot_compile(self) -> bool:
        return wants_aot(self.model_yaml_config.get("pt2"))

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any:
        path = Path(model_dir, model_file)
        if not path.is_file():
            raise RuntimeError(f"Missing the {model_file} file")
        classes = list_classes_from_module(_module_at(path))
        if len(classes) != 1:
            raise ValueError(f"Expected only one class as model definition. {classes}")
        model = classes[0]()
        if model_pt_path:
            model.load_state_dict(load_weights(model_pt_path, self.device))
        return model

    @timed
    def preprocess(self, data: Any) -> Any:
        """The batch as one tensor on the device."""
        return torch.as_tensor(data, device=self.device)

    @timed
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """What the model answers to the batch."""
        if is_session(self.model):
            return run_session(self.model, data)
        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    @timed
    def postprocess(self, data: Any) -> list[Any]:
        """One answer a row, of lists and numbers."""
        return data.tolist()  # type: ignore[no-any-return]

    def handle(self, data: Any, context: Any) -> Any:
        """Answer a batch: a prediction, an explanation or a description, as the first row's headers ask."""
        started = time.perf_counter()
        self.context = context
        if self._is_describe():
            answers = [self.describe_handle()]
        elif profiling.is_on():
            answers, _ = self._infer_with_profiler(data)
        else:
            answers = self._answers(data)
        context.metrics.add_time("HandlerTime", round((time.perf_counter() - started) * 1000, 2), None, "ms")
        return answers

    def _answers(self, data: Any, span: Callable[[str], Any] = nullcontext) -> Any:
        with span("preprocess"):
            prepared = self.preprocess(data)
        if self._is_explain():
            with span("explain"):
                return self.explain_handle(prepared, data)
        with span("inference"):
            output = self.inference(prepared)
        with span("postprocess"):
            return self.postprocess(output)

    def _infer_with_profiler(self, data: Any) -> tuple[Any, Any]:
        model = ((self.manifest or {}).get("model") or {}).get("modelName", "")
        self.profiler_args = profiling.arguments(self.profiler_args, model)
        with profile(**self.profiler_args) as profiler:
            answers = self._answers(data, record_function)
        logger.info(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=10))
        return answers, profiler

    def explain_handle(self, data_preprocess: Any, raw_data: Any) -> Any:
        """The subclass's `get_insights` on the batch, for the class that the first row names as `target`."""
        insights = getattr(self, "get_insights", None)
        if insights is None:
            raise NotImplementedError(f"{type(self).__name__} gives no explanations: it has no get_insights method")
        row = raw_data[0]
        inputs, self.target = None, 0
        if isinstance(row, dict):
            inputs = row.get("data") or row.get("body")
            self.target = _class_number(row.get("target"))
        return insights(data_preprocess, inputs, self.target)

    def _is_explain(self) -> bool:
        self.explain = self._header("explain") == "True"
        return self.explain

    def _is_describe(self) -> bool:
        return bool(self._header("describe") == "True")

    def _header(self, name: str) -> Any:
        return self.context.get_request_header(0, name) if self.context else None

    def describe_handle(self) -> Any:
        """What describe calls show as `customizedMetadata`; a subclass says more."""
        return None

    def get_device(self) -> Any:
        """Where the model runs."""
        return self.device


def _device(gpu_id: Any) -> tuple[str, torch.device]:
    if gpu_id is not None:
        for kind in ("cuda", "xpu"):
            if getattr(torch, kind).is_available():
                return kind, torch.device(f"{kind}:{gpu_id}")
        if torch.backends.mps.is_available():
            return "mps", torch.device("mps")
    return "cpu", torch.device("cpu")


def _module_at(path: Path) -> ModuleType:
    """The module in this file, under its own name, so that its neighbours and the weights find it too."""
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) and Path(str(known.__file__)).resolve() == path.resolve():
        return known
    spec = fresh.spec_of(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _class_number(target: Any) -> Any:
    """The class an explanation is for: 0 unless the row says otherwise; digits of a form count as a number."""
    if target is None:
        return 0
    if isinstance(target, bytes | bytearray | str):
        return int(target)
    return target
