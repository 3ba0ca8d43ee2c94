"""Target: what is benched: a server that is there, or one that is started for a model and stopped after."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote

import msgspec

from shoal.errors import InvalidInput, LoadFailed
from shoal.tools.bench.tensors import Form, generate
from shoal.tools.calls import Reply, ServerFailed, Site, ask, call, site_of
from shoal.tools.samples import Sample

MODEL_IN_PATH = re.compile(r"/(?:predictions|explanations|v[12]/models)/([^/:?]+)")
STARTED = "Model server started."
WITHIN = 20.0  # s for a server to end
START = (
    "import sys; from shoal.worker.template import die_with; die_with(int(sys.argv.pop(1))); "
    "from shoal.cli import main; main()"
)
LISTENS = re.compile(r"SHOAL_(.*_)?(HOST|PORT|SOCKET)").fullmatch  # variables that are for the user's own server


class Target(msgspec.Struct, frozen=True):
    """Where requests go, and what they carry besides their body."""

    site: Site
    path: str
    model: str  # empty: nobody said
    headers: dict[str, str] = {}
    block: bytes = b""  # of a gRPC call: its header block; bodies are whole messages then

    @property
    def url(self) -> str:
        """The whole address."""
        if self.block:
            scheme = "grpcs" if self.site.scheme == "https" else "grpc"
            return f"{scheme}://{self.site.authority}{self.path}"
        return self.site.url + self.path


def target_of(url: str, model: str, headers: Mapping[str, str], *, verifies: bool, tensors: bool) -> Target:
    """Read an address; one without a path needs the model's name."""
    site = site_of(url, verifies=verifies)
    named = model or (unquote(found[1]) if (found := MODEL_IN_PATH.match(site.path)) else "")
    path = site.path
    if tensors and named:
        path = f"/v2/models/{quote(named, safe='')}/infer"
    elif not path and named:
        path = f"/predictions/{quote(named, safe='')}"
    if not path:
        raise InvalidInput(f"{url} names no model; add --model NAME, or write {site.url}/predictions/NAME")
    return Target(site, path, named, dict(headers))


def is_address(text: str) -> bool:
    """Whether this is a server's address rather than a model's path."""
    return "://" in text or (re.fullmatch(r"[\w.-]+:\d+(/.*)?", text) is not None and not Path(text).exists())


def with_tensors(target: Target, shapes: Mapping[str, list[int]], form: Form) -> tuple[Target, Sample]:
    """Ask the server what the model takes, and make a body of that."""
    if not target.model:
        raise InvalidInput(f"{target.url} names no model; add --model NAME to ask for its metadata")
    path = f"/v2/models/{quote(target.model, safe='')}"
    try:
        metadata = ask(target.site, "GET", path, headers=target.headers)
    except ServerFailed as error:
        if not error.status:
            raise
        raise ServerFailed(
            f"{target.site.url}{path} does not say what the model takes ({error}); use --input"
        ) from None
    sample, more = generate(metadata if isinstance(metadata, dict) else {}, shapes, form)
    return msgspec.structs.replace(target, headers=target.headers | more), sample


def check(target: Target, sample: Sample, timeout: float) -> Reply:
    """Send one request before the load; ServerFailed says what is wrong with it."""
    headers = {"Content-Type": sample.content_type, **target.headers}
    reply = call(target.site, "POST", target.path, body=sample.body, headers=headers, timeout=timeout)
    if not 200 <= reply.status < 300:
        raise ServerFailed(f"{target.url} answered {reply.status} to the first request: {reply.problem}", reply.status)
    return reply


def request_of(target: Target, sample: Sample) -> bytes:
    """Write a request as it goes over the wire."""
    if target.block:
        return sample.body
    lines = {
        "Host": target.site.authority,
        "Content-Type": sample.content_type,
        "Content-Length": str(len(sample.body)),
        **target.headers,
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {target.path} HTTP/1.1\r\n{text}\r\n".encode("latin-1") + sample.body


def read_headers(texts: Sequence[str], token: str) -> dict[str, str]:
    """Read `Name: value` lines."""
    found = {"Authorization": f"Bearer {token}"} if token else {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()) or not value.isprintable():
            raise InvalidInput(f"--header is written 'Name: value', got {text!r}")
        found[name.strip()] = value.strip()
    return found


def command(*arguments: str) -> list[str]:
    """Give the command of a server that ends with this process, however that ends."""
    return [sys.executable, "-P", "-c", START, str(os.getpid()), *arguments]


@contextlib.contextmanager
def serving(model: str, arguments: str) -> Iterator[tuple[str, str]]:
    """Serve a model on free ports; gives the address and the model's name. It is gone when the block is left."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [
                *command("serve", model, *shlex.split(arguments)),
                *("--port", "0", "--management-port", "0", "--metrics-port", "0"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={name: value for name, value in os.environ.items() if not LISTENS(name)},
            process_group=0,  # Ctrl-C is ours to act on
        )
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != STARTED:
                process.wait(WITHIN)
                raise LoadFailed(f"no server could be started for {model}: {_last_line(log)}")
            yield _announced(log, model)
        finally:
            process.stdout.close()
            _end(process)


def _announced(log: IO[str], model: str) -> tuple[str, str]:
    log.seek(0)
    text = log.read()
    address = re.search(r"^inference +(\S+)$", text, re.MULTILINE)
    name = re.search(r"^try .*/predictions/(\S+) ", text, re.MULTILINE)
    if not address or not name:
        raise LoadFailed(f"the server for {model} did not say where it is: {_last_line(log)}")
    return address[1], name[1]


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
