"""One browser for all tests of pages; they are skipped where there is none."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser, browsing, find

MISSING = "no Chromium here: install it (Debian and Ubuntu: apt install chromium) or set SHOAL_BROWSER to its path"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if find() is None:
        pytest.skip(MISSING)
    with browsing() as started:
        yield started
