"""From a server's settings to what looks after the models of its repositories."""

from pathlib import Path

from shoal.config.triton import TritonSettings
from shoal.core.repository import Repository
from shoal.triton.control import Control
from shoal.triton.repository import Folders
from shoal.triton.source import Source


def control_of(repository: Repository, settings: TritonSettings, *, drain_within: float) -> Control:
    """Make what looks after the models of a server's repositories."""
    folders = Folders(
        [Path(path) for path in settings.repositories],
        config_name=settings.config_name,
        must_have_settings=not settings.completes,
    )
    source = Source(
        folders,
        range(settings.gpus),
        completes=settings.completes,
        is_adaptive=settings.is_adaptive,
        default_max_batch_size=settings.default_max_batch_size,
    )
    return Control(
        repository,
        source,
        mode=settings.mode,
        at_start=settings.load_models,
        poll_every=settings.poll_every,
        exit_on_error=settings.exit_on_error,
        strict_readiness=settings.strict_readiness,
        at_once=settings.loads_at_once,
        drain_within=drain_within,
    )
