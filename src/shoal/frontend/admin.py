"""The metrics page, and the files of the demo page and the dashboard."""

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import parse_qsl

from shoal.frontend.dialect import Dialect
from shoal.frontend.exchange import Exchange, header_line

MetricsPage = Callable[[Sequence[str]], bytes]  # of the metrics named, or of all
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
}
# A page may load from its own server only, and no other page may frame it. Nothing inline is run or applied.
GUARD = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-cache\r\n"
)
PROMETHEUS = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"


class Pages:
    """Static files of one page, read once, looked up by exact name: no path of a client reaches a file system.

    They are `NAME.html`, which is at `root`, everything else of that name, and what both pages share.
    """

    def __init__(self, dialect: Dialect, name: str, root: bytes) -> None:
        self._dialect = dialect
        self._name = name
        self._root = root
        self._files: dict[bytes, tuple[bytes, bytes]] = {}

    def load(self, **values: str) -> None:
        """Read the files; `{{key}}` in the page becomes the value of that key."""
        folder = files("shoal.frontend") / "pages"
        for file in folder.iterdir():
            if file.is_file() and file.name.startswith((self._name, "shoal")):
                self._add("/pages/", file)
        if self._name == "demo":
            for file in (folder / "samples").iterdir():
                self._add("/pages/samples/", file)
        page, head = self._files.pop(f"/pages/{self._name}.html".encode())
        for key, value in values.items():
            page = page.replace(b"{{%b}}" % key.encode(), escape(value).encode())
        self._files[self._root] = page, head

    def _add(self, prefix: str, file: Traversable) -> None:
        if kind := TYPES.get(file.name.rpartition(".")[2]):
            head = header_line("Content-Type", kind) + GUARD
            self._files[(prefix + file.name).encode()] = (file.read_bytes(), head)

    def show(self, exchange: Exchange) -> bool:
        """Serve a file if the target is one."""
        found = self._files.get(exchange.path)
        if found is None:
            return False
        exchange.drop_body()
        if exchange.method not in ("GET", "HEAD"):
            self._dialect.not_allowed(exchange, ("GET", "HEAD"))
        else:
            exchange.respond(200, *found)
        return True


def show_metrics(page: MetricsPage, exchange: Exchange, dialect: Dialect) -> bool:
    """Serve the Prometheus page if the target is it, or only the metrics that are named."""
    if exchange.path.rstrip(b"/") != b"/metrics":
        return False
    exchange.drop_body()
    if not dialect.name and exchange.method not in ("GET", "HEAD"):
        dialect.not_allowed(exchange, ("GET", "HEAD"))
    else:
        query = parse_qsl(exchange.query.decode("ascii", "replace"))
        dialect.respond(exchange, 200, page([value for name, value in query if name == "name[]"]), PROMETHEUS)
    return True
