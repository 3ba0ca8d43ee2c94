"""The metrics page, and the demo page with its files."""

from importlib.resources import files

from shoal.frontend.exchange import Exchange, header_line
from shoal.frontend.management import not_allowed
from shoal.telemetry import Metrics

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


class Pages:
    """Static files of the package, read once, looked up by exact name: no path of a client reaches a file system."""

    def __init__(self) -> None:
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
        if exchange.method not in ("GET", "HEAD"):
            not_allowed(exchange, ("GET", "HEAD"))
        else:
            exchange.respond(200, *found)
        return True


def show_metrics(metrics: Metrics, exchange: Exchange) -> None:
    """Serve the Prometheus page."""
    if exchange.method not in ("GET", "HEAD"):
        not_allowed(exchange, ("GET", "HEAD"))
    else:
        exchange.respond(200, metrics.page(), b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
