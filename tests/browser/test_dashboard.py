"""The dashboard in a real browser: models and batches seen live, actions taken, errors told."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.chromium import Browser, Page
from tests.serving import MODELS, Served, serving

pytestmark = pytest.mark.browser
LIVE = "document.getElementById('link').dataset.state === 'live'"
HEARD = "Number(document.getElementById('timeline').dataset.heard ?? 0)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dashboard")
    with serving(folder, str(MODELS / "tricks.py"), "--workers", "2", "--model-store", str(MODELS)) as served:
        yield served


@pytest.fixture
def page(browser: Browser, server: Served) -> Iterator[Page]:
    with browser.page() as page:
        page.open(address(server))
        page.until(LIVE)
        yield page


def address(server: Served) -> str:
    return f"http://127.0.0.1:{server.management_port}/dashboard"


@contextmanager
def load(server: Served, clients: int = 4, model: str = "tricks") -> Iterator[None]:
    """Keep a few clients at it."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            server.act(model, do="sleep", seconds=0.01)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def number(page: Page, selector: str) -> float:
    found = re.search(r"[\d.]+", page.text(selector).replace(",", ""))
    return float(found[0]) if found else 0.0


def open_table(page: Page) -> None:
    """Open the last batches as a table; what stands above it may grow between the look for it and the click."""
    for _ in range(10):
        page.click("#table-view summary")
        if page.ask("document.getElementById('table-view').open"):
            break
    page.until("document.querySelectorAll('#last tr').length > 3")


def test_a_model_is_shown_with_its_workers(page: Page, server: Served) -> None:
    page.sees("tricks 1.0", "#name")
    page.until("document.querySelectorAll('#workers-list li').length === 2")

    for pid in server.worker_pids():
        assert f"process {pid}" in page.text("#workers-list")
    assert "2/2 workers" in page.text("#models")
    assert page.ask("document.getElementById('state').dataset.state") == "ready"
    assert page.complaints == []
    assert page.foreign(address(server)) == []
    assert sum("/dashboard/events" in url for url in page.requests) == 1  # one stream, nothing else is polled
    assert len(page.requests) < 15


def test_the_timeline_and_the_numbers_move_while_requests_come(page: Page, server: Served) -> None:
    page.sees("tricks", "#name")
    still = page.ask(HEARD)
    with load(server):
        page.until(f"{HEARD} > {still} + 20")
        page.until("Number(document.getElementById('timeline').dataset.shown) > 3")
        one = page.ask("document.getElementById('timeline').toDataURL()")
        page.until(f"document.getElementById('timeline').toDataURL() !== {json.dumps(one)}")
        page.until("Number(document.getElementById('tile-rate').innerText) > 1")
        page.until("document.getElementById('tile-p99').innerText.endsWith('ms')")
        page.until("document.querySelectorAll('#chart-sizes .column').length > 0")
        page.until("document.querySelectorAll('#legend li').length > 0")
    assert number(page, "#tile-busy") > 0
    open_table(page)
    assert page.complaints == []


def test_a_paused_timeline_is_read_by_keyboard(page: Page, server: Served) -> None:
    page.sees("tricks", "#name")
    with load(server):
        page.until("Number(document.getElementById('timeline').dataset.shown) > 5")
        page.ask("document.getElementById('timeline').focus()")
        page.press("ArrowLeft")
        page.sees("left because", "#facts")
        first = page.text("#facts")
        page.press("ArrowLeft", "ArrowLeft")
        page.until(f"document.getElementById('facts').innerText !== {json.dumps(first)}")
    assert re.search(r"Batch \d+: \d+ rows?, left because .*; waited [\d.]+ ms.*, (ran [\d.]+ m?s|runs) on ", first)
    assert page.ask("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    page.click("#pause")
    page.until("document.getElementById('pause').innerText === 'Pause'")


def test_scaling_from_the_page_changes_the_workers(page: Page, server: Served) -> None:
    page.sees("tricks", "#name")
    page.click("[data-step='1']")
    page.click("#scale-now")
    page.sees("Workers scaled to 3", "#said")
    page.until("document.querySelectorAll('#workers-list li').length === 3")
    assert len(server.worker_pids()) == 3

    page.type("#workers", "2")
    page.press("Enter")
    page.sees("Workers scaled to 2", "#said")
    page.until("document.querySelectorAll('#workers-list li').length === 2")


def test_models_are_loaded_drained_brought_back_and_unloaded(page: Page, server: Served) -> None:
    page.click("#load")
    page.type("#load-url", "no-such.mar")
    page.press("Enter")
    page.until("!document.getElementById('load-fault').hidden")
    assert "no-such.mar" in page.text("#load-fault")
    page.type("#load-url", "echo.py")
    page.type("#load-name", "second")
    page.press("Enter")
    page.until("!document.getElementById('load-dialog').open")
    page.until("document.querySelector('#models [data-name=second]')")
    page.click("#models [data-name=second]")
    page.sees("second", "#name")

    page.click("#drain")
    page.press("Escape")  # not that sure
    page.until("!document.getElementById('sure').open")
    assert server.ask("/predictions/second", "x", headers={"Content-Type": "text/plain"}).status == 200
    page.click("#drain")
    page.until("document.getElementById('sure').open")
    page.ask("(document.getElementById('sure').close(), document.getElementById('drain').click(), true)")  # at once
    page.click("#sure-yes")
    page.sees("drained; scale it to bring it back", "#said")
    page.until("document.getElementById('state').innerText === 'drained'")
    refused = server.ask("/predictions/second", "x", headers={"Content-Type": "text/plain"})
    assert (refused.status, refused.json["message"]) == (503, "model 'second' is drained")
    page.type("#workers", "1")
    page.press("Enter")
    page.until("document.getElementById('state').innerText === 'ready'")
    assert server.ask("/predictions/second", "x", headers={"Content-Type": "text/plain"}).status == 200

    page.click("#unload")
    page.click("#sure-yes")
    page.until("!document.querySelector('#models [data-name=second]')")
    page.sees("tricks", "#name")  # what is left
    assert server.manage("/models/second").status == 404


def test_what_failed_last_is_shown_with_each_worker_as_text(page: Page, server: Served) -> None:
    page.sees("tricks", "#name")
    evil = "<img src=x onerror=alert(1)>"
    server.act(do="raise", message=evil)
    page.sees(f"RuntimeError: {evil}", "#workers-list")
    page.click("#workers-list .trouble:not([hidden]) summary")
    page.sees("Traceback (most recent call last)", "#workers-list")
    server.act(do="crash")
    page.sees("exited with code 7", "#workers-list")
    page.sees("restart", "#workers-list")

    assert page.ask("document.querySelectorAll('img[src=x]').length") == 0
    assert page.complaints == []


def test_markup_in_an_error_stays_text(browser: Browser, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "evil.py").write_text(f"raise RuntimeError({evil!r})\n")
    arguments = (str(MODELS / "echo.py"), "--model-store", str(tmp_path / "store"))
    with serving(tmp_path, *arguments) as served, browser.page() as page:
        page.open(address(served))
        page.until(LIVE)
        page.click("#load")
        page.type("#load-url", "evil.py")
        page.press("Enter")
        page.until("!document.getElementById('load-fault').hidden")
        assert evil in page.text("#load-fault")
        assert page.ask("document.querySelectorAll('img[src=x]').length") == 0


def test_a_server_that_is_gone_is_said_so_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    with browser.page() as page:
        with serving(tmp_path, str(MODELS / "echo.py")) as served:
            page.open(address(served))
            page.until(LIVE)
            ports = (served.port, served.management_port, served.metrics_port)
        page.until("document.getElementById('link').dataset.state === 'gone'")
        assert page.ask("document.getElementById('scale-now').disabled")
        with serving(tmp_path, str(MODELS / "echo.py"), ports=ports):
            page.until(LIVE)
            page.until("!document.getElementById('scale-now').disabled")


def test_an_open_page_does_not_hold_up_the_end_of_the_server(browser: Browser, tmp_path: Path) -> None:
    with browser.page() as page, serving(tmp_path, str(MODELS / "echo.py")) as served:
        page.open(address(served))
        page.until(LIVE)
        served.process.terminate()
        served.process.wait(15)  # the drain alone would last 30 s
        page.sees("Stopped: the server is stopping", "#link")


def test_a_key_is_asked_for_kept_and_sent_where_the_server_wants_one(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    config = f'token_authorization = true\nkey_file = "{keys}"\n'
    with serving(tmp_path, str(MODELS / "echo.py"), config=config) as served, browser.page() as page:
        page.open(address(served))
        page.until("!document.getElementById('locked').hidden")
        assert "echo" not in page.text("body")  # nothing is told without a key
        assert page.ask("document.getElementById('load').disabled")
        page.type("#key", "wrong")
        page.press("Enter")
        page.sees("That key is wrong", "#key-fault")
        page.type("#key", json.loads(keys.read_text())["inference"]["key"])  # another key, for another API
        page.press("Enter")
        page.until("document.getElementById('key').value === ''")
        page.sees("That key is wrong", "#key-fault")
        page.type("#key", json.loads(keys.read_text())["management"]["key"])
        page.press("Enter")
        page.until(LIVE)
        page.sees("echo", "#name")
        page.click("[data-step='1']")
        page.click("#scale-now")
        page.sees("Workers scaled to 2", "#said")
        secret = json.loads(keys.read_text())["management"]["key"]
        assert not any(secret in url for url in page.requests)
        assert page.ask("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])") == '[{},{},""]'


def test_fifty_models_are_listed_and_found(browser: Browser, tmp_path: Path) -> None:
    path = MODELS / "echo.py"
    tables = "\n".join(f'[models.model-{i:02}]\npath = "{path}"\nworkers = {int(i == 7)}' for i in range(50))
    with serving(tmp_path, config=tables) as served, browser.page(360, 800) as page:
        page.open(address(served))
        page.until("document.querySelectorAll('#models li').length === 50")
        page.type("#find", "07")
        page.until("document.querySelectorAll('#models li').length === 1")
        page.click("#models button")
        page.sees("model-07", "#name")
        assert page.ask("location.hash") == "#model-07/1.0"
        assert page.overflow() == []
        assert page.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (1920, False), (1920, True)])
def test_nothing_sticks_out_on_a_phone_or_a_wide_screen(
    browser: Browser, server: Served, width: int, dark: bool
) -> None:
    with browser.page(width, 900, dark=dark) as page, load(server):
        page.open(address(server))
        page.until(f"{HEARD} > 10")
        open_table(page)
        page.until("document.querySelectorAll('#chart-rate .curve').length > 0")

        assert page.overflow() == []
        assert page.complaints == []
        dark_ground = page.ask("getComputedStyle(document.body).backgroundColor") == "rgb(12, 21, 26)"
        assert dark_ground is dark


def test_the_page_can_be_used_by_keyboard_alone(page: Page, server: Served) -> None:
    page.sees("tricks", "#name")
    seen = []
    for _ in range(14):
        page.press("Tab")
        seen.append(
            page.ask("document.activeElement.id || document.activeElement.className || document.activeElement.tagName")
        )
    assert seen[0] == "skip"
    assert {"load", "workers", "scale-now", "drain", "unload", "span", "pause", "timeline"} <= set(seen)
    unnamed = page.ask(
        "[...document.querySelectorAll('button, input, select, canvas')].filter((e) => !e.innerText"
        " && !e.labels?.length && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby'))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
