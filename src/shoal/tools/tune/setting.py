"""Setting: what is tuned of a model, and how it is written in each of the files that people keep it in."""

import json
from typing import Any

import msgspec

Threads = tuple[int, int, int]  # of preprocess, inference, postprocess
STAGES = ("preprocess", "inference", "postprocess")
KNOBS = ("batching", "workers", "instances", "micro-batches", "stage threads")
MOST_ROWS = 256  # of a batch where nobody says


class Setting(msgspec.Struct, frozen=True):
    """One way to serve a model; what is not said is Shoal's default."""

    limit: int = 0  # most rows of a batch; 0: Shoal's own
    delay: float | None = None  # ms that a batch may wait to be full; None: adaptive, it waits for nothing
    workers: int = 1
    instances: int = 1
    micro: int = 0  # rows of a micro-batch; 0: a batch moves as one
    threads: Threads = (1, 1, 1)

    @property
    def label(self) -> str:
        """Say it in a few words."""
        words = [batching_label(self)]
        words.append(f"{self.workers} worker{'s' * (self.workers > 1)}")
        if self.instances > 1:
            words.append(f"{self.instances} instances each")
        if self.micro:
            words.append(f"micro-batches of {self.micro}")
        if self.threads != (1, 1, 1):
            words.append(f"stage threads {'-'.join(map(str, self.threads))}")
        return ", ".join(words)

    def with_knob(self, knob: str, other: "Setting") -> "Setting":
        """Take one knob's value from another setting."""
        return msgspec.structs.replace(self, **{field: getattr(other, field) for field in FIELDS[knob]})

    def has_knob(self, knob: str, other: "Setting") -> bool:
        """Whether a knob stands as in another setting."""
        return self.with_knob(knob, other) == self


FIELDS = {
    "batching": ("limit", "delay"),
    "workers": ("workers",),
    "instances": ("instances",),
    "micro-batches": ("micro",),
    "stage threads": ("threads",),
}


def batching_label(setting: Setting) -> str:
    """Say how batches leave."""
    if setting.delay is None:
        return f"adaptive up to {setting.limit}" if setting.limit else "adaptive"
    return "one at a time" if setting.limit == 1 else f"batches of {setting.limit} within {setting.delay:g} ms"


def knob_label(setting: Setting, knob: str) -> str:
    """Say how one knob stands."""
    return {
        "batching": batching_label(setting),
        "workers": str(setting.workers),
        "instances": str(setting.instances),
        "micro-batches": str(setting.micro) if setting.micro else "none",
        "stage threads": "-".join(map(str, setting.threads)),
    }[knob]


def values_of(setting: Setting) -> dict[str, Any]:
    """Give it as a model's settings; all of it, for it stands over what a file says."""
    batching: dict[str, Any] = {"policy": "adaptive", "batch_size": setting.limit}
    if setting.delay is not None:
        batching = {"policy": "fixed", "batch_size": setting.limit, "max_batch_delay": setting.delay}
    return {
        "workers": setting.workers,
        "instances": setting.instances,
        "batching": batching,
        "micro_batching": {
            "micro_batch_size": setting.micro,
            "parallelism": dict(zip(STAGES, setting.threads, strict=True)),
        },
    }


def setting_of(values: dict[str, Any]) -> Setting:
    """Read it from a model's settings, as far as they say anything."""
    batching = values.get("batching", {})
    micro = values.get("micro_batching", {})
    limit = int(batching.get("batch_size", 0))
    is_fixed = batching.get("policy", "") == "fixed" or (limit > 0 and not batching.get("policy"))
    if batching.get("policy") == "single":
        limit, is_fixed = 1, True
    delay = 0.0 if limit == 1 else float(batching.get("max_batch_delay", 100.0))
    threads = micro.get("parallelism", {})
    return Setting(
        limit=limit or (MOST_ROWS if is_fixed else 0),
        delay=delay if is_fixed else None,
        workers=int(values.get("workers", 1)),
        instances=int(values.get("instances", 1)),
        micro=int(micro.get("micro_batch_size", 0)),
        threads=(int(threads.get(STAGES[0], 1)), int(threads.get(STAGES[1], 1)), int(threads.get(STAGES[2], 1))),
    )


def to_toml(setting: Setting, name: str) -> str:
    """Write it as a model's section of a settings file; what is the default is left out."""
    lines = [f"[models.{json.dumps(name) if '.' in name else name}]"]
    if setting.workers > 1:
        lines.append(f"workers = {setting.workers}")
    if setting.instances > 1:
        lines.append(f"instances = {setting.instances}")
    if setting.delay is not None:
        delay = "" if setting.limit == 1 else f", max_batch_delay = {setting.delay:g}"
        lines.append(f"batching = {{batch_size = {setting.limit}{delay}}}")
    elif setting.limit:
        lines.append(f'batching = {{policy = "adaptive", batch_size = {setting.limit}}}')
    micro = [f"micro_batch_size = {setting.micro}"] if setting.micro else []
    if setting.threads != (1, 1, 1):
        micro.append(f"parallelism = {{{', '.join(f'{name} = {count}' for name, count in _threads(setting))}}}")
    if micro:
        lines.append(f"micro_batching = {{{', '.join(micro)}}}")
    return "\n".join(lines) + "\n"


def to_yaml(setting: Setting) -> str:
    """Write it as a model-config.yaml, which has no instances: each is a worker. Without a batchSize it is adaptive."""
    workers = setting.workers * setting.instances
    lines = [f"minWorkers: {workers}", f"maxWorkers: {workers}"]
    if setting.delay is not None:
        lines.append(f"batchSize: {setting.limit}")
        if setting.limit > 1:
            lines.append(f"maxBatchDelay: {max(1, round(setting.delay))}")
    if setting.micro or setting.threads != (1, 1, 1):
        lines.append("micro_batching:")
        if setting.micro:
            lines.append(f"  micro_batch_size: {setting.micro}")
        lines.append(f"  parallelism: {{{', '.join(f'{name}: {count}' for name, count in _threads(setting))}}}")
    return "\n".join(lines) + "\n"


def to_pbtxt(setting: Setting) -> str:
    """Write it as a part of a config.pbtxt; workers and instances are one number there."""
    lines = ["# no dynamic_batching: one request at a time"]
    if setting.limit != 1:
        delay = round(1000 * (setting.delay or 0.0))
        said = f" max_queue_delay_microseconds: {delay} " if delay else " "
        lines = [f"max_batch_size: {setting.limit or MOST_ROWS}", f"dynamic_batching {{{said}}}"]
    lines.append(f"instance_group [ {{ count: {setting.workers * setting.instances} }} ]")
    return "\n".join(lines) + "\n"


def _threads(setting: Setting) -> list[tuple[str, int]]:
    return list(zip(STAGES, setting.threads, strict=True))
