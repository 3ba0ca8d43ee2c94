"""A headless Chromium, driven through the pipe of its DevTools protocol: no driver, no library beside it."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update"),
    *("--disable-extensions", "--disable-sync", "--hide-scrollbars", "--mute-audio", "--force-color-profile=srgb"),
)
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
PATIENCE = 30.0  # s


def find() -> str | None:
    """Where the browser is; `SHOAL_BROWSER` may say."""
    named = os.environ.get("SHOAL_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process; `page` opens tabs that share nothing."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process = process
        self._to = to
        self._back = back
        self._held = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """Ask for something and wait for the answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while number not in self._answers:
            assert time.monotonic() < end, f"{method}: no answer from the browser"
            self.listen(0.1)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def listen(self, within: float) -> None:
        """Take in what the browser says within that time, or the first of it."""
        if select.select([self._back], [], [], within)[0]:
            data = os.read(self._back, 2**20)
            assert data, "the browser ended"
            *messages, self._held = (self._held + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers[message["id"]] = message
                elif page := self._pages.get(message.get("sessionId", "")):
                    page.hear(message["method"], message["params"])

    @contextlib.contextmanager
    def page(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator["Page"]:
        """Open a tab of its own, of that size."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            page.call(f"{domain}.enable")
        page.resize(width, height, dark=dark)
        try:
            yield page
        finally:
            self._pages.pop(session)
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """One tab: what it is told to do, what it fetched, and what it complained about."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def hear(self, method: str, what: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(what["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(what["exceptionDetails"])[:1000])
            case "Runtime.consoleAPICalled" if what["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(what["args"])[:1000])
            case "Log.entryAdded" if what["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def ask(self, expression: str) -> Any:
        """Give the value of an expression on the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, expression: str, within: float = PATIENCE) -> Any:
        """Wait for an expression to be true; its value."""
        end = time.monotonic() + within
        asked = f"(() => {{ const it = {expression}; return it instanceof Node || it; }})()"
        while not (value := self.ask(asked)):
            shown = "" if time.monotonic() < end else self.ask("document.body.innerText.slice(0, 1500)")
            assert time.monotonic() < end, f"never became true: {expression}\n{shown}\n{self.complaints}"
            self._browser.listen(0.05)
        return value

    def text(self, selector: str) -> str:
        return str(self.ask(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait for a text to be seen."""
        found = f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(text)})"
        self.until(found)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a person would: what covers it gets the click."""
        place = self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e || e.disabled) return null;"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return b.width ? [b.left + b.width / 2, b.top + b.height / 2] : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, *keys: str) -> None:
        for key in keys:
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            fields = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS.get(key, 0)}
            self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, selector: str, text: str) -> None:
        self.ask(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self.call("Input.insertText", text=text)

    def give_files(self, selector: str, *paths: Path) -> None:
        """Choose files in a file field."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path) for path in paths], nodeId=node)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Keep what is seen as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def overflow(self) -> list[str]:
        """Tell what sticks out to the right, if the page can be scrolled that way."""
        found: list[str] = self.ask(
            "document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]"
            ".filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)"
            ".map((e) => `${e.tagName}#${e.id}.${e.className}`).slice(0, 8).concat('scrollWidth')"
        )
        return found

    def foreign(self, url: str) -> list[str]:
        """Tell which requests went to another server."""
        own = urlsplit(url).netloc
        schemes = ("http", "https", "ws", "wss")
        return [to for to in self.requests if urlsplit(to).scheme in schemes and urlsplit(to).netloc != own]


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """Start a browser, and see to it that nothing of it is left."""
    path = find()
    assert path is not None
    with tempfile.TemporaryDirectory(prefix="shoal-browser-", ignore_cleanup_errors=True) as folder:
        read_by_it, to = os.pipe()
        back, written_by_it = os.pipe()
        read_by_it, written_by_it = (_move_up(number) for number in (read_by_it, written_by_it))
        shell = f'exec 3<&{read_by_it} 4>&{written_by_it}; exec "$0" "$@"'  # the numbers that the browser expects
        process = subprocess.Popen(
            ["bash", "-c", shell, path, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(read_by_it, written_by_it),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        os.close(read_by_it)
        os.close(written_by_it)
        browser = Browser(process, to, back)
        try:
            yield browser
        finally:
            with contextlib.suppress(OSError, AssertionError):
                browser.call("Browser.close")
            os.close(to)
            os.close(back)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _move_up(number: int) -> int:
    """Give a descriptor another number, which is none of those that the browser expects."""
    moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(number)
    return moved
