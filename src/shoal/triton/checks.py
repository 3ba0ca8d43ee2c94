"""What is wrong with a configuration as it stands in its file, whatever the model itself will say."""

from collections.abc import Iterator
from typing import Any

from shoal.errors import ConfigError
from shoal.triton.form import value_name
from shoal.triton.normalise import PLATFORMS

CORRELATION = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
AGENTS = "model_repository_agents cannot be used for {name}: there are no repository agents here"


def check_settings(message: Any) -> None:
    """Raise ConfigError with the first thing that is wrong; defaults must have been filled in."""
    for problem in problems(message):
        raise ConfigError(problem)


def problems(message: Any) -> Iterator[str]:
    """Tell what is wrong, one line each."""
    name = message.name
    if message.max_batch_size < 0:
        yield f"'max_batch_size' must be non-negative value for {name}"
    yield from _platform(message)
    if message.HasField("model_repository_agents") and message.model_repository_agents.agents:
        yield AGENTS.format(name=name)
    match message.WhichOneof("scheduling_choice"):
        case "dynamic_batching":
            yield from _dynamic(message.dynamic_batching, message)
        case "sequence_batching":
            yield from _sequence(message.sequence_batching, message)
        case "ensemble_scheduling":
            yield from _ensemble(message)
    yield from _cache(message)


def _platform(message: Any) -> Iterator[str]:
    name, platform, backend = message.name, message.platform, message.backend
    has_steps = message.WhichOneof("scheduling_choice") == "ensemble_scheduling"
    if platform == "ensemble":
        if backend:
            yield f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type"
        if not has_steps:
            yield f"ensemble scheduling must be set for ensemble {name} whose platform is ensemble"
        return
    if has_steps:
        yield f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble"
    of_backend = {platform for platform, (owner, _) in PLATFORMS.items() if owner == backend}
    if platform and of_backend and platform not in of_backend:
        yield f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}"


def _dynamic(dynamic: Any, message: Any) -> Iterator[str]:
    name, levels = message.name, dynamic.priority_levels
    for size in dynamic.preferred_batch_size:
        if size <= 0:
            yield f"dynamic batching preferred size must be positive for {name}"
        if size > message.max_batch_size:
            yield f"dynamic batching preferred size must be <= max batch size for {name}"
    if levels:
        if not 1 <= dynamic.default_priority_level <= levels:
            yield f"default priority level must be in range [1, {levels}] for {name}"
        for level in dynamic.priority_queue_policy:
            if not 1 <= level <= levels:
                yield f"priority queue policy must have priority level in range [1, {levels}] for {name}"
    if dynamic.preserve_ordering:
        if levels > 1:
            yield f"Only one priority level is allowed when 'preserve_ordering' is true for {name}"
        policies = [dynamic.default_queue_policy]
        if any(value_name(policy, "timeout_action") == "DELAY" for policy in policies):
            yield ("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for " + name)


def _sequence(sequences: Any, message: Any) -> Iterator[str]:
    name = message.name
    strategy = sequences.WhichOneof("strategy_choice")
    if strategy == "direct" and not 0 <= sequences.direct.minimum_slot_utilization <= 1:
        yield f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}"
    if strategy == "oldest":
        for size in sequences.oldest.preferred_batch_size:
            if size <= 0:
                yield f"sequence batching preferred batch size must be positive for {name}"
            if size > message.max_batch_size:
                yield f"sequence batching preferred batch size must be <= max batch size for {name}"
    seen: set[str] = set()
    names: set[str] = set()
    for tensor in sequences.control_input:
        if not tensor.name:
            yield f"sequence batching control tensor must have a name for {name}"
        if tensor.name in names:
            yield f"sequence batching specifies control tensor '{tensor.name}' more than once for {name}"
        names.add(tensor.name)
        for control in tensor.control:
            kind = value_name(control, "kind")
            if kind in seen:
                yield f"sequence batching specifies multiple {kind} tensors for {name}"
            seen.add(kind)
            yield from _control(control, kind, name)


def _control(control: Any, kind: str, name: str) -> Iterator[str]:
    given = [values for values in VALUES if getattr(control, values)]
    choice = "'int32_false_true', 'fp32_false_true'"
    if kind == "CONTROL_SEQUENCE_CORRID":
        if given:
            yield f"sequence batching must not specify either {choice} or 'bool_false_true' for {kind} for {name}"
        if value_name(control, "data_type") not in CORRELATION:
            allowed = ", ".join(CORRELATION[:-1]) + f" and {CORRELATION[-1]}"
            yield f"unexpected data type for control {kind} for {name}. Allowed data types are {allowed}"
        return
    if not given:
        yield f"sequence batching must specify either {choice} or 'bool_false_true' for {kind} for {name}"
    if len(given) > 1:
        yield f"sequence batching specifies more than one from {choice} and 'bool_false_true' for {kind} for {name}"
    for values in given:
        if len(getattr(control, values)) != 2:
            yield f"sequence batching control '{values}' must have exactly 2 entries for {kind} for {name}"


def _ensemble(message: Any) -> Iterator[str]:
    """See that the graph holds together; whether its models are there is asked when it is loaded."""
    name, steps = message.name, message.ensemble_scheduling.step
    for field, words in (
        ("instance_group", f"instance group should not be specified for ensemble '{name}'"),
        ("optimization", f"optimization should not be specified for ensemble '{name}'"),
        ("model_warmup", f"model_warmup can not be specified for ensemble '{name}'"),
    ):
        if message.HasField(field) if field == "optimization" else getattr(message, field):
            yield words
    if not steps:
        yield f"must specify 'step' for ensemble '{name}'"
    made = {tensor.name for tensor in message.input}
    used: set[str] = set()
    for number, step in enumerate(steps):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                yield f"must specify '{field}' in step {number} of ensemble '{name}'"
        used.update(step.input_map.values())
        for tensor in step.output_map.values():
            if tensor in made:
                once = f"ensemble tensor '{tensor}' can appear in an output map only once"
                yield f"{once} for ensemble '{name}' step {number}"
            made.add(tensor)
    outputs = {tensor.name for tensor in message.output}
    for tensor in message.input:
        if tensor.name not in used:
            yield f"ensemble input '{tensor.name}' for ensemble {name} is not used"
    for wanted in [*sorted(used - made), *sorted(outputs - made)]:
        yield f"ensemble tensor '{wanted}' is not an input of ensemble '{name}' and no step of it gives it"
    for loose in sorted(made - used - outputs):
        yield f"ensemble tensor '{loose}' is unused in ensemble '{name}'"


def _cache(message: Any) -> Iterator[str]:
    if not message.response_cache.enable:
        return
    words = f"Response Cache does not currently support model {message.name} with"
    if message.WhichOneof("scheduling_choice") == "sequence_batching":
        yield f"{words} sequence batching scheduler. Please disable the response cache."
    if message.model_transaction_policy.decoupled:
        yield f"{words} 'decoupled' transaction policy. Please disable the response cache."
