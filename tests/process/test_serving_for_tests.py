"""`shoal.testing.serving`: a real server for the length of a block."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import ConfigError, InvalidInput, LoadFailed
from shoal.testing import Client, PredictionFailed, serving

ECHO = Path(__file__).parents[2] / "examples" / "echo.py"


class Upper(shoal.Handler):
    """At the top of this file, so that a worker can import it."""

    def decode(self, item: Any) -> str:
        return str(item.upper())

    def inference(self, data: list[str]) -> list[str]:
        return data


def shout(items: list[str]) -> list[str]:
    return [f"{item}!" for item in items]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(Upper) as client:
        yield client


def test_a_handler_class_is_served_and_answers(client: Client) -> None:
    assert client.predict("abc") == "ABC"
    assert client.predict(b'"def"', content_type="application/json") == "DEF"
    assert client.model == "test_serving_for_tests"


def test_many_threads_share_a_client(client: Client) -> None:
    results: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=number: results.update({n: client.predict(f"a{n}")})) for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"A{number}" for number in range(16)}


def test_an_error_is_raised_with_its_status(client: Client) -> None:
    with pytest.raises(PredictionFailed, match="no attribute") as raised:
        client.predict(7)
    assert raised.value.status >= 500 and b"upper" in raised.value.body


def test_the_listeners_are_all_there(client: Client) -> None:
    assert client.send("GET", "/ping")[0] == 200
    assert len({client.url, client.management_url, client.metrics_url}) == 3


def test_a_function_is_served_with_settings_and_ends_cleanly() -> None:
    threads = set(threading.enumerate())
    with serving(shout, name="loud", batching={"batch_size": 2, "max_batch_delay": 1}) as client:
        assert client.predict("hey") == "hey!"
        assert client.model == "loud"
    assert set(threading.enumerate()) <= threads
    with pytest.raises(OSError):
        client.send("GET", "/ping")


def test_a_block_that_fails_stops_the_server_too() -> None:
    with pytest.raises(ZeroDivisionError), serving(ECHO) as client:
        raise ZeroDivisionError
    with pytest.raises(OSError):
        client.send("GET", "/ping")


def test_a_model_that_cannot_be_loaded_is_raised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    threads = set(threading.enumerate())
    with pytest.raises(LoadFailed, match="nothing_of_this_name"), serving(tmp_path / "broken.py"):
        pass
    assert set(threading.enumerate()) <= threads


def test_what_workers_cannot_import_is_refused() -> None:
    def local(items: list[Any]) -> list[Any]:
        return items

    with pytest.raises(ConfigError, match=r"local must stand at the top of test_serving_for_tests.py"), serving(local):
        pass
    with pytest.raises(ConfigError, match="is not in a file that workers could import"), serving(len):
        pass
    with pytest.raises(InvalidInput, match="no model at"), serving("/no/such/model.py"):
        pass
    with pytest.raises(ConfigError, match="unknown key 'prot'"), serving(ECHO, prot=8080):
        pass
