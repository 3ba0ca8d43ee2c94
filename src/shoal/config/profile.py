"""The profile that `shoal profile --keep` leaves with a model: what its batches cost, so that batching starts warm."""

import logging
from pathlib import Path

import msgspec

log = logging.getLogger("shoal.config")
LARGEST = 4 * 2**20  # bytes; a profile has a few thousand


class Row(msgspec.Struct, frozen=True):
    """One measured size; what else a profile says of it is for people."""

    size: int
    total: float  # seconds


class Kept(msgspec.Struct, frozen=True):
    """What of a profile batching needs."""

    rows: list[Row]


_decode = msgspec.json.Decoder(Kept).decode


def beside(model: Path) -> Path:
    """Where a profile is kept with its model: in its folder, or next to its file."""
    return model / "profile.json" if model.is_dir() else model.with_name(f"{model.name.split('.')[0]}.profile.json")


def kept_costs(model: Path) -> dict[int, float]:
    """Read the seconds by batch size that were kept with a model; nothing where no profile can be read."""
    file = beside(model)
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST} bytes")
        rows = _decode(file.read_bytes()).rows
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("the profile %s is left aside: %s", file, error)
        return {}
    return {row.size: row.total for row in rows if row.size > 0 and row.total > 0}
