"""Asks a server over a plain socket and keeps everything it says: reason, headers, chunks, whether it closed."""

import base64
import concurrent.futures
import json
import re
import socket
import time
from typing import Any, cast

from tests.upstream.rows import JSON, Ask, Call, Look, Row
from tests.upstream.rpc import invoke, parsed
from tests.upstream.servers import Server

PATIENCE = 90.0  # seconds for one answer
NORMAL: tuple[tuple[re.Pattern[str], str], ...] = (  # what no two runs say alike
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r'((?:Hostname|hostname)=")[^"]+'), r"\1<name>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<host>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\A9\d{3}(-[0-9a-f]+)*\Z"), "<worker>"),
)
Answer = dict[str, Any]


def answer(server: Server, row: Row) -> list[Answer]:
    """What the server answers to a row, in the order of its asks."""
    end = time.monotonic() + PATIENCE
    while True:
        if len(row.asks) == 1:
            answers = [_one(server, row.asks[0], row.look)]
        else:
            with concurrent.futures.ThreadPoolExecutor(len(row.asks)) as crowd:
                answers = list(crowd.map(lambda one: _one(server, one, row.look), row.asks))
        if all(re.search(row.until, json.dumps(said.get("body"))) for said in answers) or time.monotonic() > end:
            return answers
        time.sleep(0.1)


def _one(server: Server, ask: Ask | Call, look: Look) -> Answer:
    if isinstance(ask, Call):
        return _normal(invoke(server, ask), server)
    time.sleep(ask.after)
    try:
        said = _exchange(server.port(ask.port), ask, server)
    except TimeoutError:
        said = {"status": 0, "silent": True, "bytes": b""}
    said["body"] = _seen(said.pop("bytes"), look, said.get("headers", {}).get("content-type", ""))
    return _normal(said, server)


def _exchange(port: int, ask: Ask, server: Server) -> Answer:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as link:
        link.sendall(_request(ask, port, server))
        reader = link.makefile("rb")
        said, headers = _head(reader)
        if said["status"] == 100:
            said, headers = _head(reader)
            said["continued"] = True
        if headers.get("transfer-encoding") == "chunked":
            chunks = list(_chunks(reader))
            said["chunks"] = [base64_or_text(chunk) for chunk in chunks]
            said["bytes"] = b"".join(chunks)
        else:
            said["bytes"] = reader.read(int(headers.get("content-length", 0)))
            if "content-length" in headers:
                headers["content-length"] = "<length>"
        if headers.get("connection") == "close":
            link.settimeout(5)
            said["closed"] = _is_closed(reader)
        return said


def _head(reader: Any) -> tuple[Answer, dict[str, str]]:
    line = reader.readline().decode("latin-1").rstrip("\r\n")
    if not line:
        return {"status": 0}, {}
    _, status, *reason = line.split(" ", 2)
    headers: dict[str, str] = {}
    while line := reader.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return {"status": int(status), "reason": "".join(reason), "headers": headers}, headers


def _request(ask: Ask, port: int, server: Server) -> bytes:
    if ask.raw:
        return ask.raw
    lines = [f"{ask.method} {ask.path} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    lines += [f"{name}: {server.fill(value)}" for name, value in ask.headers]
    if ask.body is not None:
        lines.append(f"Content-Length: {len(ask.body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (ask.body or b"")


def _chunks(reader: Any) -> Any:
    while size := int(reader.readline().split(b";")[0] or b"0", 16):
        yield reader.read(size)
        reader.readline()
    reader.readline()


def _is_closed(reader: Any) -> bool:
    try:
        return not reader.read(1)
    except ConnectionResetError:
        return True
    except OSError:
        return False


def base64_or_text(data: bytes) -> str:
    """Bytes as JSON can hold them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _seen(body: bytes, look: Look, kind: str) -> Any:
    """As much of a body as its row wants compared; what the server itself wrote as JSON is taken apart."""
    if look == "presence":
        return bool(body)
    if look == "numbers":
        return json.loads(body) if body[:1] in (b"[", b"{") else base64_or_text(body)
    if look == "openapi":
        return _outline(body)
    if look == "series":
        return _series(body.decode())
    text = base64_or_text(body)
    return parsed(text, "\n") if kind == JSON else text


def _series(page: str) -> Any:
    """A metrics page by its series and their kinds, without the values."""
    kinds = dict(line.split(" ")[2:4] for line in page.splitlines() if line.startswith("# TYPE "))
    samples = [line.rpartition(" ")[0] for line in page.splitlines() if line and not line.startswith("#")]
    return {"kinds": dict(sorted(kinds.items())), "samples": dict.fromkeys(sorted(samples), True)}


def _outline(body: bytes) -> Any:
    """An OpenAPI document by its heads: what it is called and which calls it describes."""
    document = json.loads(body)
    if "openapi" not in document:
        return document
    paths = {path: sorted(methods) for path, methods in sorted(document["paths"].items())}
    info = {name: text for name, text in document["info"].items() if name != "description"}
    return {"openapi": document["openapi"], "info": info, "paths": paths}


def _normal(said: Answer, server: Server) -> Answer:
    """Without ids, times, ports and folders."""
    return cast(Answer, _deeply(json.loads(server.hide(json.dumps(said)))))


def _deeply(value: Any) -> Any:
    if isinstance(value, dict):
        numbers = {name: "<number>" for name in ("pid", "memoryUsage") if type(value.get(name)) is int}
        return {_deeply(name): numbers.get(name) or _deeply(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_deeply(item) for item in value]
    if isinstance(value, str):
        for pattern, text in NORMAL:
            value = pattern.sub(text, value)
    return value
