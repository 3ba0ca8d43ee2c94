import pytest

from shoal.frontend.admin import Pages
from shoal.frontend.dialect import NATIVE
from tests.unit.frontend.api_fakes import Answer


def demo(**values: str) -> Pages:
    pages = Pages(NATIVE, "demo", b"/")
    pages.load(**values)
    return pages


def get(pages: Pages, target: str, method: str = "GET") -> Answer | None:
    answer = Answer(target, method)
    return answer if pages.show(answer.exchange) else None


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/pages/demo.js", "text/javascript; charset=utf-8"),
        ("/pages/shoal.css", "text/css; charset=utf-8"),
        ("/pages/samples/bee.jpg", "image/jpeg"),
    ],
)
def test_a_page_has_its_own_files_and_those_that_are_shared(target: str, kind: str) -> None:
    answer = get(demo(), target)

    assert answer is not None and answer.status == 200
    assert answer.headers["content-type"] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


@pytest.mark.parametrize(
    "target",
    ["/dashboard", "/pages/dashboard.js", "/pages/demo.html", "/pages/samples/README.md", "/pages/../admin.py", "/x"],
)
def test_nothing_else_is_a_file(target: str) -> None:
    assert get(demo(), target) is None


def test_there_is_no_page_before_it_was_loaded() -> None:
    assert get(Pages(NATIVE, "demo", b"/"), "/") is None


def test_a_value_is_put_into_the_page_as_text() -> None:
    answer = get(demo(dashboard='http://h/"><script>'), "/")

    assert answer is not None
    assert b'content="http://h/&quot;&gt;&lt;script&gt;"' in answer.body
    assert b"{{" not in answer.body


def test_a_file_is_read_and_never_written() -> None:
    answer = get(demo(), "/", "PUT")

    assert answer is not None
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
