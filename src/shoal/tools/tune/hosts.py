"""Hosts: how a model is served with a setting: by `shoal serve`, or as a model of a Triton repository."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from google.protobuf import text_format

from shoal.config import pbtxt
from shoal.errors import ConfigError, InvalidInput
from shoal.tools.tune.setting import Setting, to_pbtxt, to_toml, to_yaml, values_of
from shoal.tools.tune.space import Space

SETTINGS = "config.pbtxt"
_OURS = re.compile(r"^(inference|management) +(\S+)$", re.MULTILINE)
_TRITONS = re.compile(r"Started HTTPService at (\S+)(?s:.*)Started Metrics Service at")


class Served(msgspec.Struct, frozen=True):
    """Where a server is."""

    inference: str
    management: str = ""  # empty: it has none


class Host(Protocol):
    """One model, and how it is served."""

    name: str

    @property
    def path(self) -> str:
        """Where its requests go."""
        ...

    @property
    def default(self) -> Setting:
        """What it is served with now."""
        ...

    def space(self, wanted: Space) -> Space:
        """What of a space can be tried with it."""
        ...

    def arguments(self, setting: Setting, folder: Path) -> list[str]:
        """Give the command that serves it, what the command needs put into an empty folder."""
        ...

    def address(self, log: str) -> Served | None:
        """Read where the server is; None: it does not say so yet."""
        ...

    def files(self, setting: Setting) -> dict[str, str]:
        """Write a setting as it stands in each kind of file that this model may have."""
        ...


class Native:
    """A Python file, a folder or an archive, under `shoal serve`."""

    def __init__(self, name: str, server: Mapping[str, Any], model: Mapping[str, Any], default: Setting) -> None:
        self.name = name
        self.default = default
        self._server = server
        self._model = model

    @property
    def path(self) -> str:
        """Where its requests go."""
        return f"/predictions/{quote(self.name, safe='')}"

    def space(self, wanted: Space) -> Space:
        """All of it."""
        return wanted

    def arguments(self, setting: Setting, folder: Path) -> list[str]:
        """Serve it by a settings file, on free ports."""
        ports = {"port": 0, "management_port": 0, "metrics_port": 0}
        file = folder / "settings.json"
        file.write_text(json.dumps({**self._server, **ports, "models": {self.name: served(self._model, setting)}}))
        return ["serve", "--config", str(file)]

    def address(self, log: str) -> Served | None:
        """Read the lines that `shoal serve` begins with."""
        found = dict(_OURS.findall(log))
        return Served(found["inference"], found["management"]) if len(found) == 2 else None

    def files(self, setting: Setting) -> dict[str, str]:
        """Write it as a section of a settings file, and as a model-config.yaml."""
        return {"settings.toml": to_toml(setting, self.name), "model-config.yaml": to_yaml(setting)}


class Triton:
    """A model of a Triton repository, under `shoal tritonserver`: its config.pbtxt is the only file that changes."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._folder = folder
        self._message = pbtxt.read(folder / SETTINGS)
        if self._message.WhichOneof("scheduling_choice") not in (None, "dynamic_batching"):
            raise InvalidInput(
                f"{folder / SETTINGS}: sequences and ensembles have no batch limit to tune; tune their parts"
            )

    @property
    def path(self) -> str:
        """Where its requests go."""
        return f"/v2/models/{quote(self.name, safe='')}/infer"

    @property
    def default(self) -> Setting:
        """What its config.pbtxt says."""
        message = self._message
        count = max(1, sum(max(1, group.count) for group in message.instance_group))
        if not message.HasField("dynamic_batching") or message.max_batch_size < 2:
            return Setting(limit=1, delay=0.0, workers=count)
        delay = message.dynamic_batching.max_queue_delay_microseconds / 1000
        return Setting(limit=message.max_batch_size, delay=delay, workers=count)

    def space(self, wanted: Space) -> Space:
        """Batches as far as the model takes them, with a delay or none; instances are workers."""
        most = max(1, self._message.max_batch_size)
        limits = sorted({limit for limit in wanted.limits if limit < most} | {1, most})
        return Space(limits, [0.0, *wanted.delays], wanted.workers, (1,), (0,), ((1, 1, 1),), has_adaptive=False)

    def arguments(self, setting: Setting, folder: Path) -> list[str]:
        """Serve a copy whose files are links, with other settings; the models beside it are there for its calls."""
        for beside in self._folder.parent.iterdir():
            if beside.is_dir() and beside != self._folder:
                os.symlink(beside.absolute(), folder / beside.name)
        (folder / self.name).mkdir()
        for file in self._folder.iterdir():
            if file.name != SETTINGS:
                os.symlink(file.absolute(), folder / self.name / file.name)
        (folder / self.name / SETTINGS).write_text(self._written(setting))
        ports = [f"--{api}-port=0" for api in ("http", "grpc", "metrics")]
        chosen = ["--model-control-mode=explicit", f"--load-model={self.name}"]
        return ["tritonserver", f"--model-repository={folder}", *chosen, *ports]

    def address(self, log: str) -> Served | None:
        """Read the lines that tritonserver writes once it listens."""
        found = _TRITONS.search(log)
        return Served(f"http://{found[1]}") if found else None

    def files(self, setting: Setting) -> dict[str, str]:
        """Write it as a part of a config.pbtxt."""
        return {SETTINGS: to_pbtxt(setting)}

    def _written(self, setting: Setting) -> str:
        message = type(self._message)()
        message.CopyFrom(self._message)
        message.ClearField("dynamic_batching")
        if setting.limit > 1:
            message.max_batch_size = setting.limit  # otherwise it stays, for it also bounds what one request may have
            if self._message.HasField("dynamic_batching"):
                message.dynamic_batching.CopyFrom(self._message.dynamic_batching)
                message.dynamic_batching.ClearField("preferred_batch_size")
            message.dynamic_batching.max_queue_delay_microseconds = round(1000 * (setting.delay or 0.0))
        kept = list(self._message.instance_group)[:1]
        message.ClearField("instance_group")
        group = message.instance_group.add()
        if kept:
            group.CopyFrom(kept[0])
        group.count = setting.workers
        return str(text_format.MessageToString(message))


def served(model: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Put a setting over what is said of a model; a default that nobody spoke of stays unsaid."""
    values = values_of(setting)
    if setting.limit == 0 and setting.delay is None and "batching" not in model:
        del values["batching"]
    return {**model, **values}


def triton_model(path: Path) -> Path | None:
    """Give the folder of a Triton model that a path names; None where it names something else."""
    folder = path.parent if path.name == SETTINGS else path
    if not (folder / SETTINGS).is_file():
        return None
    folder = folder.resolve()
    if not any(entry.name.isdecimal() and entry.is_dir() for entry in folder.iterdir()):
        raise ConfigError(f"{folder} has no folder of a version, such as 1")
    return folder
