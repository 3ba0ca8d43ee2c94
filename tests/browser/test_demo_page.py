"""The demo page in a real browser: pictures in, answers, copies and errors seen."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal.frontend
from shoal.demo.assets import ensure
from shoal.errors import LoadFailed
from tests.browser.chromium import Browser, Page
from tests.serving import MODELS, Served, serving

pytestmark = pytest.mark.browser
SAMPLES = Path(next(iter(shoal.frontend.__path__))) / "pages" / "samples"
DONE = "document.querySelectorAll('.card[aria-busy=false]').length"
CONFIG = f"""
page = true

[models.bees]
path = "{MODELS / "pictures.py"}"
handler = "Bees"

[models.ocr]
path = "{MODELS / "pictures.py"}"
handler = "Ocr"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("demo"), config=CONFIG) as served:
        yield served


@pytest.fixture
def page(browser: Browser, server: Served) -> Iterator[Page]:
    with browser.page() as page:
        page.open(f"http://127.0.0.1:{server.port}/")
        yield page


def give(page: Page, *names: str) -> None:
    page.give_files("#file", *(SAMPLES / name for name in names))


def test_pictures_that_are_chosen_get_a_label_bars_the_time_and_the_batch(page: Page, server: Served) -> None:
    give(page, "bee.jpg", "cat.jpg", "espresso.jpg")
    page.until(f"{DONE} === 3")

    card = page.text(".card")
    assert "Class 0" in card
    assert page.ask("document.querySelector('.card').querySelectorAll('.bars li').length") == 5
    assert re.search(r"There and back in [\d.]+ ms, (alone in its batch|in a batch of \d)", card)
    assert re.search(r"left because \w", card)
    assert "Bee 75 %" in card
    assert page.complaints == []
    assert page.foreign(f"http://127.0.0.1:{server.port}") == []


def test_a_picture_can_be_dropped_or_pasted(page: Page) -> None:
    make = (
        "const bytes = await (await fetch('/pages/samples/bee.jpg')).blob(); const files = new DataTransfer();"
        "files.items.add(new File([bytes], 'mine.jpg', {type: 'image/jpeg'}));"
    )
    page.ask(f"(async () => {{ {make} document.dispatchEvent(new DragEvent('drop', {{dataTransfer: files}})); }})()")
    page.until(f"{DONE} === 1")
    assert "mine.jpg" in page.text(".card figcaption")

    page.ask(
        f"(async () => {{ {make} document.dispatchEvent(new ClipboardEvent('paste', {{clipboardData: files}})); }})()"
    )
    page.until(f"{DONE} === 2")


def test_two_hundred_copies_show_the_batches_they_came_back_in(page: Page) -> None:
    give(page, "bee.jpg")
    page.sees("Send 200 copies")
    page.click(".card .actions button")
    page.sees("in all", ".shoal")

    story = re.search(r"200 answers in (\d+) batches, ([\d.]+) to a batch", page.text(".shoal"))
    assert story is not None, page.text(".shoal")
    columns = int(story[1])
    assert columns < 200  # some travelled together
    assert page.ask("document.querySelectorAll('.batches li').length") == columns
    assert page.ask("document.querySelectorAll('.batches i:not(.is-others)').length") == 200
    assert "left because" in page.text(".reasons")
    assert page.text(".card .actions button") == "Send 200 copies"


def test_batches_that_look_alike_are_still_told_apart(page: Page) -> None:
    give(page, "bee.jpg")
    page.until(f"{DONE} === 1")
    timing = 'queue;dur=1, preprocess;dur=0.004, inference;dur=4.1, postprocess;dur=0.001, batch;desc="2 full"'
    answer = f"new Response('{{}}', {{headers: {{'Server-Timing': '{timing}'}}}})"
    page.ask(f"(() => {{ window.fetch = async () => {answer}; }})()")
    page.click(".card .actions button")
    page.sees("in all", ".shoal")

    assert "200 answers in 100 batches, 2.0 to a batch" in page.text(".shoal")
    assert page.ask("document.querySelectorAll('.batches i:not(.is-others)').length") == 200


def test_copies_can_be_stopped(page: Page) -> None:
    give(page, "bee.jpg")
    page.click(".card .actions button")
    page.sees("to go", ".shoal")
    page.click(".card .actions button")
    page.sees("in all", ".shoal")

    assert "200 answers" not in page.text(".shoal")
    assert "to go" not in page.text(".shoal")


def test_text_is_the_second_example(page: Page) -> None:
    page.click("[data-sample='sign.png']")
    page.until(f"{DONE} === 1")

    assert "HARBOUR STREET" in page.text(".card pre")
    page.until("document.querySelectorAll('.frame i').length === 1")
    assert page.ask("document.querySelector('input[name=model]:checked').value") == "ocr"


def test_what_is_no_picture_is_refused_in_words(page: Page, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    page.give_files("#file", tmp_path / "notes.txt")
    page.until(f"{DONE} === 1")

    assert "The model cannot use this" in page.text(".card .error")
    assert "not an image this model reads <b>at all</b>" in page.text(".card .error")  # as text
    assert page.ask("document.querySelector('.frame').classList.contains('is-broken')")


def test_a_server_that_is_gone_is_said_so(browser: Browser, tmp_path: Path) -> None:
    with browser.page() as page:
        with serving(tmp_path, config=CONFIG) as served:
            page.open(f"http://127.0.0.1:{served.port}/")
        give(page, "bee.jpg")
        page.until(f"{DONE} === 1")

        assert "could not be reached" in page.text(".card .error")


def test_everything_can_be_reached_and_done_by_keyboard(page: Page) -> None:
    seen = []
    for _ in range(8):
        page.press("Tab")
        seen.append(page.ask("document.activeElement.id || document.activeElement.dataset.sample || 'model'"))
    assert seen[:4] == ["model", "file", "bee.jpg", "ant.png"]
    page.ask("document.querySelector('[data-sample=\"bee.jpg\"]').focus()")
    page.press("Enter")
    page.until(f"{DONE} === 1")


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (1920, False)])
def test_nothing_sticks_out_on_a_phone_or_a_wide_screen(
    browser: Browser, server: Served, width: int, dark: bool
) -> None:
    with browser.page(width, 800, dark=dark) as page:
        page.open(f"http://127.0.0.1:{server.port}/")
        assert page.ask("document.getElementById('photo').hidden") is (width > 360)  # a camera where there is one
        give(page, "bee.jpg")
        page.click(".card .actions button")
        page.sees("in all", ".shoal")
        page.click("[data-sample='sign.png']")
        page.until(f"{DONE} === 2")

        assert page.overflow() == []
        assert page.complaints == []


def test_the_page_leads_to_the_dashboard_on_the_management_port(page: Page, server: Served) -> None:
    link = page.ask("document.querySelector('#dashboard:not([hidden]) a').href")

    assert link == f"http://127.0.0.1:{server.management_port}/dashboard"
    assert server.ask("/dashboard").status == 404
    assert server.ask("/dashboard/events").status == 404
    assert server.ask("/pages/dashboard.js").status == 404


def test_the_real_models_answer_on_it(browser: Browser, tmp_path: Path) -> None:
    try:
        ready = ensure()
    except LoadFailed as error:
        pytest.skip(str(error))
    folder = Path(next(iter(shoal.frontend.__path__))).parent / "demo"
    config = f"""
page = true
[models.bees]
path = "{folder / "bees.py"}"
parameters = {{ model = "{ready.classifier}", labels = "{ready.labels}" }}
[models.ocr]
path = "{folder / "ocr.py"}"
parameters = {{ detector = "{ready.detector}", recogniser = "{ready.recogniser}" }}
"""
    with serving(tmp_path, config=config) as served, browser.page() as page:
        page.open(f"http://127.0.0.1:{served.port}/")
        give(page, "bee.jpg")
        page.until(f"{DONE} === 1")
        assert page.text(".card h3") == "Bee"
        page.click("[data-sample='sign.png']")
        page.until(f"{DONE} === 2")
        assert "HARBOUR STREET" in page.text(".card pre")
