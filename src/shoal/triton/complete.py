"""Completing: what a configuration leaves out is asked of the model itself, in a process of its own.

The process needs the model's library and may run the model's code; the server does neither.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.errors import LoadFailed

COMMAND = (sys.executable, "-P", "-m", "shoal.worker.complete")
WITHIN = 120.0  # s
LARGEST = 4 * 2**20  # bytes of a completed configuration


def is_complete(message: Any) -> bool:
    """Say whether nothing can be left to ask: PyTorch tells nothing, ONNX only of tensors that are not described."""
    match message.backend:
        case "onnxruntime":
            return bool(message.input and message.output)
        case "python":
            return False  # its own code may set anything
    return True


async def complete(
    settings: Mapping[str, Any],
    folder: Path,
    version_folder: Path,
    *,
    default_max_batch_size: int = 0,
    within: float = WITHIN,
    command: tuple[str, ...] = COMMAND,
) -> bytes:
    """Give the completed configuration, as JSON; raises LoadFailed with the reason."""
    options = [f"--default-max-batch-size={default_max_batch_size}"] if default_max_batch_size else []
    process = await asyncio.create_subprocess_exec(
        *command,
        str(folder),
        str(version_folder),
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(within):
            output, errors = await process.communicate(json.dumps(dict(settings)).encode())
    except TimeoutError:
        raise LoadFailed(f"its configuration was not completed within {within:g} s") from None
    finally:
        await _end(process)
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise LoadFailed(lines[-1], "\n".join(lines[:-1]))
    if len(output) > LARGEST:
        raise LoadFailed(f"its completed configuration is larger than {LARGEST} bytes")
    return output


async def _end(process: asyncio.subprocess.Process) -> None:
    """See that nothing of it is left, whatever its code started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
