"""TorchScript modules and exported programs: one copy of the weights, run by the threads of all instances."""

import contextlib
import re
import threading
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.config import devices
from shoal.config.model import ModelConfig, TensorSpec
from shoal.errors import HandlerFailed, LoadFailed
from shoal.upstream.ts.utils.weights import load_exported
from shoal.worker import failures
from shoal.worker.backends import tensors, triton
from shoal.worker.backends.merging import Layout, Merged, make_program, plain_memory
from shoal.worker.program import Program

Net = Callable[..., Any]
_INDEX = re.compile(r".+__(\d+)")
_COMPILED = re.compile(r"[^/]+/data/aotinductor/.+")


def load(config: ModelConfig) -> Program:
    """Make the program of a PyTorch model."""
    file = triton.model_file(config, "model.pt", "model.pt2")
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LoadFailed(f"model {config.name!r} is to run on {config.device}, and torch sees no GPU here")
    _set_threads(config)
    if file.suffix == ".pt2":
        net, names = open_exported(file, config, device)
        takes_dict = False
    else:
        net, names, takes_dict = open_script(file, config, device)
    layout = Layout(config, owns_inputs=True, allocate=_pinned if device.type == "cuda" else plain_memory)
    model = Model(config, layout, net, device, input_order(config, names, takes_dict, layout.added))
    return make_program("pytorch", layout, model.infer)


def open_script(file: Path, config: ModelConfig, device: torch.device) -> tuple[Net, list[str], bool]:
    """Open a TorchScript file: the module, the names of its arguments, and whether its one argument is a dict."""
    optimize = not triton.switch(config.settings, "DISABLE_OPTIMIZED_EXECUTION", False)
    try:
        torch._C._set_graph_executor_optimize(optimize)
        module = torch.jit.load(str(file), map_location=device)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise _unloadable(file, config, error) from error
    module.eval()
    arguments = module.forward.schema.arguments[1:]
    return (
        module,
        [argument.name for argument in arguments],
        len(arguments) == 1 and arguments[0].type.kind() == "DictType",
    )


def open_exported(file: Path, config: ModelConfig, device: torch.device) -> tuple[Net, list[str]]:
    """Open an exported program: its module and the names of its arguments. Nothing pickled in it is run."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise _unloadable(file, config, error) from error
    if any(map(_COMPILED.fullmatch, names)):
        raise LoadFailed(
            f"{file.name} of model {config.name!r} is a compiled package, and exported programs are served; save it "
            "with torch.export.save"
        )
    try:
        program = load_exported(str(file))
        return program.module().to(device), list(program.graph_signature.user_inputs)
    except Exception as error:
        raise _unloadable(file, config, error) from error


def input_order(
    config: ModelConfig, arguments: Sequence[str], takes_dict: bool, added: Collection[str] = ()
) -> list[str] | None:
    """Give the inputs, those that are `added` to a client's too, in the order of the arguments; None: keys of one dict.

    By the names of the arguments where all inputs have them, by `<any>__<index>` where all are written so, else as
    the configuration lists them.
    """
    assert config.interface is not None
    names = [*(spec.name for spec in config.interface.inputs), *added]
    if takes_dict:
        return None
    if set(names) <= set(arguments):
        return [name for name in arguments if name in names]
    return _by_index(config.name, names, "input") or names


def _by_index(model: str, names: Sequence[str], what: str) -> list[str] | None:
    found = [_INDEX.fullmatch(name) for name in names]
    if not all(found):
        return None
    order = {int(match[1]): name for match, name in zip(found, names, strict=True) if match}
    if sorted(order) != list(range(len(names))):
        raise LoadFailed(f"the {what}s of model {model!r} must be numbered from 0 without gaps, got {', '.join(names)}")
    return [order[index] for index in range(len(names))]


class Model:
    """Calls the module."""

    def __init__(
        self, config: ModelConfig, layout: Layout, net: Net, device: torch.device, order: list[str] | None
    ) -> None:
        names = list(dict.fromkeys([*layout.outputs, *layout.states]))
        self._net = net
        self._order = order
        self._device = device
        self._outputs = _by_index(config.name, names, "output") or names
        self._specs: Mapping[str, TensorSpec] = {**layout.states, **layout.outputs}
        self._states = layout.states
        self._inputs = {**layout.inputs, **layout.added}
        self._is_batched = layout.is_batched
        self._inference = triton.switch(config.settings, "INFERENCE_MODE", True)
        self._cleans = triton.switch(config.settings, "ENABLE_CACHE_CLEANING", False)
        self._streams = threading.local()

    def infer(self, merged: Merged) -> dict[str, Any]:
        """Run the model and give its outputs as arrays."""
        try:
            with torch.inference_mode(self._inference), torch.set_grad_enabled(False), self._stream():
                fed = {name: self._fed(name, array) for name, array in merged.arrays.items()}
                given = self._net(fed) if self._order is None else self._net(*self._arguments(fed))
                named = _named(given, self._outputs)
                outputs = {
                    name: _array(self._specs[name], value, self._lead(merged))
                    for name, value in named.items()
                    if name in self._specs
                }
        except HandlerFailed:
            raise
        except Exception as error:
            if failures.is_out_of_memory(error):
                raise
            raise HandlerFailed(f"PyTorch execute failure: {error}", status=tensors.INTERNAL) from error
        finally:
            if self._cleans and self._device.type == "cuda":
                torch.cuda.empty_cache()
        return {
            name: array
            for name, array in outputs.items()
            if name in self._states or any(call.wants(name) for call in merged.calls)
        }

    def _lead(self, merged: Merged) -> tuple[int, ...]:
        return (merged.total,) if self._is_batched else ()

    def _arguments(self, fed: dict[str, Any]) -> list[Any]:
        """Give the values in order; optional inputs that are not there end the list, or are None before others."""
        assert self._order is not None
        values = [fed.get(name) for name in self._order]
        while values and values[-1] is None:
            values.pop()
        return values

    def _fed(self, name: str, array: Any) -> Any:
        if array.dtype == np.object_:
            if array.ndim != 1 and array.size != array.shape[0]:
                raise HandlerFailed(f"input '{name}' must be a list of strings, got shape {list(array.shape)}",
                                    status=400)  # fmt: skip
            return [element.decode() if isinstance(element, bytes) else element for element in array.ravel()]
        spec = self._inputs.get(name)
        if spec is not None and spec.datatype == "BF16":
            value = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            value = torch.from_numpy(array)
        return value.to(self._device, non_blocking=True) if self._device.type == "cuda" else value

    def _stream(self) -> Any:
        """Work of each instance's thread goes to a stream of its own."""
        if self._device.type != "cuda":
            return contextlib.nullcontext()
        if not hasattr(self._streams, "own"):
            self._streams.own = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(self._streams.own)


def _named(given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Give outputs their names: a dict has them, a tuple or list is in order, anything else is the only one."""
    if isinstance(given, dict):
        if missing := [name for name in names if name not in given]:
            raise HandlerFailed(
                f"output '{missing[0]}' is not among what the model gave: {', '.join(map(str, given))}",
                status=tensors.INTERNAL,
            )
        return given
    is_texts = isinstance(given, list) and all(isinstance(value, str) for value in given)
    values = list(given) if isinstance(given, list | tuple) and not is_texts else [given]
    if len(values) < len(names):
        raise HandlerFailed(
            f"the model gave {len(values)} outputs, and {len(names)} are configured: {', '.join(names)}",
            status=tensors.INTERNAL,
        )
    return dict(zip(names, values, strict=False))


def _array(spec: TensorSpec, value: Any, lead: tuple[int, ...]) -> Any:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        array = np.empty(len(value), np.object_)
        array[:] = value
        shape = (*lead, *spec.dims)
        return array.reshape(shape) if prod(shape) == len(value) else array
    if not isinstance(value, torch.Tensor):
        raise HandlerFailed(
            f"output '{spec.name}' must be a tensor, got {type(value).__name__}", status=tensors.INTERNAL
        )
    here = value.detach().cpu().contiguous()
    return here.view(torch.int16).numpy().view(np.uint16) if here.dtype == torch.bfloat16 else here.numpy()


def _set_threads(config: ModelConfig) -> None:
    """Share the cores between instances: torch gives each thread that calls it helpers of its own."""
    share = max(1, devices.count_cpus() // max(1, config.workers * config.instances))
    torch.set_num_threads(triton.number(config.settings, "INTRA_OP_THREAD_COUNT", 0) or share)
    if between := triton.number(config.settings, "INTER_OP_THREAD_COUNT", 0):
        torch.set_num_interop_threads(between)


def _pinned(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()


def _unloadable(file: Path, config: ModelConfig, error: Exception) -> LoadFailed:
    text = str(error).strip()
    return LoadFailed(
        f"{file.name} of model {config.name!r} cannot be loaded: {text.splitlines()[0] if text else error!r}"
    )
