from pathlib import Path

import pytest

from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed
from shoal.worker.backends import triton


@pytest.mark.parametrize("scheduler", ["ensemble_scheduling"])
def test_what_is_not_served_yet_is_refused_and_not_served_wrongly(scheduler: str, tmp_path: Path) -> None:
    config = ModelConfig(name="m", path=str(tmp_path), flavour="triton", backend="identity", settings={scheduler: {}})

    with pytest.raises(LoadFailed, match=f"uses {scheduler}, which is not served yet"):
        triton.load(config, "m-0")
