"""Where settings come from: defaults < file < environment < flags. Unknown keys are refused with the nearest name."""

import json
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml

from shoal.config import kinds
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)
PREFIX = "SHOAL_"


def read_file(path: str) -> dict[str, Any]:
    """Read a TOML, YAML or JSON file of settings."""
    source = Path(path)
    try:
        text = source.read_text("utf-8")
        match source.suffix.lower():
            case ".toml":
                values: Any = tomllib.loads(text)
            case ".yaml" | ".yml":
                values = yaml.safe_load(text)
            case ".json":
                values = json.loads(text)
            case other:
                raise ConfigError(f"{path}: settings are .toml, .yaml or .json, not {other or 'a file without ending'}")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected settings by name, got {type(values).__name__}")
    return values


def server_config(file: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any]) -> ServerConfig:
    """Put the layers together; a flag that is None was not given. `models` in the file is not looked at here."""
    values = {key: value for key, value in file.items() if key != "models"}
    of_environment = {key[len(PREFIX) :].lower(): text for key, text in environment.items() if key.startswith(PREFIX)}
    _refuse_unknown(ServerConfig, of_environment, f"environment ({PREFIX}...)")
    values |= of_environment
    values |= {key: value for key, value in flags.items() if value is not None}
    return convert(ServerConfig, values, "settings")


def with_own_settings(config: ServerConfig, environment: Mapping[str, str]) -> ServerConfig:
    """Add to another server's settings what it has no word for: SHOAL_FRONTENDS."""
    text = environment.get(f"{PREFIX}FRONTENDS")
    if text is None:
        return config
    where = f"environment ({PREFIX}...)"
    return convert(ServerConfig, {**msgspec.structs.asdict(config), "frontends": text}, where)


def model_config(values: Mapping[str, Any], where: str) -> ModelConfig:
    """Check one model's settings."""
    return convert(ModelConfig, values, where)


def convert(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make a settings object, or say what is wrong, where, and what would be right."""
    _refuse_unknown(kind, values, where)
    try:
        return kinds.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        text = str(error) + _choices(kind, str(error))
        raise ConfigError(f"{where}: {text.replace('`$.', '`').replace(' - at `$`', '')}") from None


def _refuse_unknown(kind: type[msgspec.Struct], values: Mapping[str, Any], where: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in values.items():
        if key not in fields:
            near = get_close_matches(str(key), fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(fields))}"
            raise ConfigError(f"{where}: unknown key {key!r}; {hint}")
        inner = fields[key]
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and isinstance(value, Mapping):
            _refuse_unknown(inner, value, f"{where}.{key}")


def _choices(kind: type[msgspec.Struct], error: str) -> str:
    """Give the values that would be right, which msgspec leaves out of what it says about a wrong one."""
    path = re.search(r"`\$\.([\w.]+)`", error)
    if path is None or not error.startswith("Invalid enum value"):
        return ""
    found: Any = kind
    for name in path[1].split("."):
        found = {field.name: field.type for field in msgspec.structs.fields(found)}[name]
    if get_origin(found) is not Literal:  # a table whose keys are meant
        found = get_args(found)[0]
    return f"; it is one of: {', '.join(sorted(filter(None, get_args(found))))}"
