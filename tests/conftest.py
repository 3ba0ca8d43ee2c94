"""What holds for all tests: Ctrl-C can be sent, the longest files begin first, and properties may take their time."""

import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Whoever starts the tests in the background may have left Ctrl-C ignored, for them and all they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files of a minute and more: the last to begin would be waited for by processes with nothing left to do.
LONG = ("test_compiled.py", "test_recorded.py", "test_chaos.py", "test_migrate_guide.py")
# Files that measure begin when the first of those, which takes both cores, is through.
MEASURING = ("test_tools_guide.py", "test_tune.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the long files come first, the longest before the others, and those that measure amid the rest."""
    first = sorted((item for item in items if item.path.name in LONG), key=lambda item: LONG.index(item.path.name))
    middle = [item for item in items if item.path.name in MEASURING]
    rest = [item for item in items if item.path.name not in (*LONG, *MEASURING)]
    half = len(rest) // 2
    while 0 < half < len(rest) and rest[half].path == rest[half - 1].path:
        half += 1
    items[:] = [*first, *rest[:half], *middle, *rest[half:]]
