"""Large answers on a real server: they go by shared memory, whose places are used again only when they were sent."""

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving import Served, serving

MODEL = """
def predict(items):
    out = []
    for item in items:
        letter, _, size = item.partition(b":")
        out.append(letter * int(size))
    return out
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("large") / "large.py"
    file.write_text(MODEL)
    with serving(file.parent, str(file)) as made:
        yield made


def letter(number: int) -> bytes:
    return bytes([97 + number % 26])


def whole(served: Served, number: int, size: int) -> bool:
    reply = served.ask("/predictions/large", letter(number) + b":%d" % size)
    return reply.status == 200 and reply.body == letter(number) * size


def test_answers_of_every_size_are_right_though_all_together_are_more_than_the_memory(served: Served) -> None:
    sizes = [1, 65_535, 65_536, 65_537, 600_000, 1_048_576, 3_000_000]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: whole(served, number, sizes[number % len(sizes)]), range(420)))
    assert found == [True] * 420


def test_an_answer_that_its_client_does_not_read_yet_stays_as_it_is(served: Served) -> None:
    size = 8_000_000  # more than the sockets hold
    with contextlib.ExitStack() as stack:
        links = []
        for number in range(6):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60))
            body = letter(number) + b":%d" % size
            link.sendall(
                b"POST /predictions/large HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            links.append(link)
        assert all(whole(served, 10 + number, 1_000_000) for number in range(30))
        for number, link in enumerate(links):
            assert read(link, size) == letter(number) * size


def test_an_answer_larger_than_the_memory_goes_by_the_socket(served: Served) -> None:
    assert whole(served, 3, 270_000_000)


def read(link: socket.socket, size: int) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += link.recv(65_536)
    body = bytearray(got.partition(b"\r\n\r\n")[2])
    while len(body) < size:
        body += link.recv(2**20)
    return bytes(body)
