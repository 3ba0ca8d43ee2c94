"""What a Python model adds to its configuration: whatever its auto_complete_config says."""

import json
from pathlib import Path
from typing import Any

from shoal.config.model import ModelConfig as Settings
from shoal.errors import LoadFailed
from shoal.upstream.triton_python_backend_utils import helpers, logger
from shoal.upstream.triton_python_backend_utils.model_config import ModelConfig
from shoal.worker.backends import triton_python


def complete(config: dict[str, Any], version_folder: Path) -> dict[str, Any]:
    """Run auto_complete_config, where the model has one; LoadFailed says what it raised."""
    file = triton_python.find_file(Settings(name="model", path=str(version_folder), settings=config))
    logger.show()
    helpers.set_model_dir(str(version_folder))
    try:
        module = triton_python.import_model(file, version_folder)
        method = getattr(getattr(module, triton_python.CLASS), "auto_complete_config", None)
        if method is None:
            return config
        completed = method(ModelConfig(json.dumps(config)))
    except LoadFailed:
        raise
    except BaseException as error:  # SystemExit too
        raise LoadFailed(triton_python.told(error)) from error
    if not isinstance(completed, ModelConfig):
        raise LoadFailed(
            f"auto_complete_config of model {config['name']!r} must return the ModelConfig, got "
            f"{type(completed).__name__}"
        )
    return completed.as_dict()
