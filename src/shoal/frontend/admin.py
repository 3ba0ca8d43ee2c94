"""The metrics page, and the demo page with its files."""

from collections.abc import Callable, Sequence
from importlib.resources import files
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
# The page may load from its own server only.
GUARD = (
    b"Content-Security-Policy: default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; "
    b"script-src 'self' 'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n"
)
PROMETHEUS = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"


class Pages:
    """Static files of the package, read once, looked up by exact name: no path of a client reaches a file system."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._files: dict[bytes, tuple[bytes, bytes]] = {}

    def load(self) -> None:
        """Read the files."""
        root = files("shoal.frontend") / "pages"
        for folder, prefix in ((root, "/pages/"), (root / "samples", "/pages/samples/")):
            if folder.is_dir():
                for file in folder.iterdir():
                    if file.is_file() and (kind := TYPES.get(file.name.rpartition(".")[2])):
                        head = header_line("Content-Type", kind) + GUARD
                        self._files[(prefix + file.name).encode()] = (file.read_bytes(), head)
        if page := self._files.get(b"/pages/demo.html"):
            self._files[b"/"] = page

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
