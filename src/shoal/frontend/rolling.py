"""Rolling: rollouts as clients of the management API ask for them, and what they are told."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from shoal.config.load import convert
from shoal.config.model import Canary, ModelConfig
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts, succeeding
from shoal.errors import ConfigError, InvalidInput, ModelNotFound

PREFIX = "canary_"


class Wish(NamedTuple):
    """What a registration is to do besides: take a version's place, or take a share of its requests."""

    kind: Literal["replace", "canary"]
    rule: Canary | None = None
    workers: bool = False  # the client said how many


class Rolling:
    """Does what clients ask of rollouts."""

    def __init__(self, repository: Repository, rollouts: Rollouts) -> None:
        self._repository = repository
        self._rollouts = rollouts

    async def bring(self, config: ModelConfig, wish: Wish) -> str:
        """Load a version and give it the place or the share that was asked for; the sentence for the client."""
        try:
            old = self._repository.find(config.name)
        except ModelNotFound:
            old = None
        if old is not None and not wish.workers:
            config = succeeding(config, old)
        what = f'Model "{config.name}" Version: {config.version}'
        if wish.rule is not None:
            if old is None:
                raise InvalidInput(f"model {config.name!r} has no version to share with; register it without canary")
            await self._rollouts.load_on_trial(config, wish.rule)
            return f"{what} has {wish.rule.weight:g} % of the requests, {old.version} the others"
        await self._rollouts.replace(config)
        place = f"took the place of {old.version}" if old is not None else "registered"
        return f"{what} {place} with {config.workers} workers"

    def share(self, name: str, version: str, parameters: Mapping[str, str]) -> str:
        """Change the share of a version; with weight 0 it has none."""
        rule = None if _is_none(parameters.get("weight", "")) else _rule(parameters)
        self._rollouts.share(name, version, rule)
        if rule is None:
            serving = self._repository.find(name).version
            return f'Model "{name}" Version: {version} has no share of the requests any more, {serving} has all of them'
        return f'Model "{name}" Version: {version} has {rule.weight:g} % of the requests'


def wish_of(parameters: Mapping[str, str]) -> Wish | None:
    """Read what a registration is to do besides; None for a plain one."""
    replaces = parameters.get("replace", "").lower() == "true"
    workers = "initial_workers" in parameters
    if "canary" in parameters:
        if replaces:
            raise InvalidInput("replace and canary exclude each other: a version takes another's place or shares it")
        told = {key.removeprefix(PREFIX): value for key, value in parameters.items() if key.startswith(PREFIX)}
        return Wish("canary", _rule({**told, "weight": parameters["canary"]}), workers)
    return Wish("replace", None, workers) if replaces else None


def _rule(told: Mapping[str, str]) -> Canary:
    try:
        return convert(Canary, {key: value for key, value in told.items() if value}, "canary")
    except ConfigError as error:
        raise InvalidInput(str(error)) from None


def _is_none(weight: str) -> bool:
    try:
        return float(weight) == 0
    except ValueError:
        return False
