import asyncio
import threading
from typing import Any

import pytest

from shoal.config.model import Batching
from shoal.errors import InvalidInput, Unreadable
from shoal.wire.messages import Item
from shoal.worker.handler import Context, Handler, RequestView, gpu_id
from shoal.worker.requests import Requests
from tests.unit.worker.making import config, context, nothing

HEADERS = [(b"X-Trace", b"abc"), (b"accept", b"*/*")]


def requests(*ids: bytes) -> Requests:
    return Requests([Item([], number, [(b"X-Of", number), *HEADERS]) for number in ids], RequestView)


def test_a_context_tells_what_torchserve_tells() -> None:
    made = Context(
        config(name="bees", device="cuda:1", parameters={"top": 5}, batching=Batching(batch_size=8)),
        "worker-3",
        "/models/bees",
        {"model": {}},
    )
    assert made.model_name == "bees"
    assert made.worker == "worker-3"
    assert made.parameters == made.model_yaml_config == {"top": 5}
    assert made.manifest == {"model": {}}
    assert made.gpu_id == 1
    assert made.system_properties["model_dir"] == made.model_dir == "/models/bees"
    assert made.system_properties["gpu_id"] == 1
    assert made.system_properties["batch_size"] == 8
    assert set(made.system_properties) == {
        *("model_dir", "gpu_id", "batch_size", "server_name", "server_version", "limit_max_image_pixels")
    }


@pytest.mark.parametrize(("device", "number"), [("cpu", None), ("cuda", 0), ("cuda:0", 0), ("cuda:3", 3)])
def test_a_device_has_a_gpu_number_or_none(device: str, number: int | None) -> None:
    assert gpu_id(device) == number


def test_headers_and_ids_are_those_of_the_request_asked_for() -> None:
    made = context()
    made.enter(requests(b"first", b"second"), nothing)
    assert made.request_ids == {0: "first", 1: "second"}
    assert made.get_request_id() == "first"
    assert made.get_request_id(1) == "second"
    assert made.get_request_header(1, "X-Of") == "second"
    assert made.get_request_header(0, "x-trace") == "abc"
    assert made.get_request_header(0, "absent") is None
    assert made.get_all_request_header(0) == {"X-Of": "first", "X-Trace": "abc", "accept": "*/*"}
    assert made.request_processor[1].get_request_property("X-Of") == "second"
    assert made.get_sequence_id(0) == ""


def test_a_spelling_that_is_there_wins_over_another_case() -> None:
    made = context()
    made.enter(Requests([Item([], b"", [(b"Key", b"1"), (b"key", b"2")])], RequestView), nothing)
    assert (made.get_request_header(0, "key"), made.get_request_header(0, "KEY")) == ("2", "1")


def test_what_a_handler_says_about_an_answer_is_kept_for_that_answer() -> None:
    made = context()
    made.enter(requests(b"a", b"b"), nothing)
    made.set_response_status(404, "Nobody", idx=1)
    made.set_response_content_type(1, "image/png")
    made.set_response_header(1, "X-Score", 0.5)  # type: ignore[arg-type]  # users do
    assert made.get_response_status(0) == (200, "")
    assert made.get_response_status(1) == (404, "Nobody")
    assert made.get_response_content_type(1) == "image/png"
    assert made.get_response_headers(1) == {"content-type": "image/png", "X-Score": "0.5"}
    said = made.requests.said(1)
    assert said is not None
    assert (said.content_type, said.headers) == ("image/png", [("X-Score", "0.5")])
    made.set_all_response_status(500, "No")
    assert made.get_response_status(0) == made.get_response_status(1) == (500, "No")


def test_what_was_said_goes_with_the_requests_that_are_kept() -> None:
    made = requests(b"a", b"b", b"c")
    made.view(2).report_status(418)
    kept = made.keep([0, 2])
    assert [kept.view(index).request_id for index in range(len(kept))] == ["a", "c"]
    assert kept.view(1).status == 418


def test_each_thread_sees_the_batch_it_works_on() -> None:
    made = context()
    seen: dict[bytes, str] = {}
    both = threading.Barrier(2, timeout=20)

    def work(number: bytes) -> None:
        made.enter(requests(number), nothing)
        both.wait()
        seen[number] = made.get_request_id()

    threads = [threading.Thread(target=work, args=(number,)) for number in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == {b"one": "one", b"two": "two"}


def test_a_thread_of_the_handlers_own_sees_the_batch_too() -> None:
    made = context()
    made.enter(requests(b"mine"), nothing)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(made.get_request_id()))
    thread.start()
    thread.join(20)
    assert seen == ["mine"]
    assert asyncio.run(asyncio.to_thread(made.get_request_id)) == "mine"


def test_nothing_of_a_batch_is_kept_once_it_was_left() -> None:
    made = context()
    made.enter(requests(b"mine"), nothing)
    made.leave()
    assert len(made.requests) == 0
    with pytest.raises(RuntimeError, match="at hand"):
        made.send([1])


def test_leaving_one_batch_does_not_take_another_from_threads_of_the_handlers_own() -> None:
    made = context()
    made.enter(requests(b"first"), nothing)
    other = threading.Thread(target=lambda: made.enter(requests(b"second"), nothing))
    other.start()
    other.join(20)
    made.leave()
    assert made.get_request_id() == "second"


class Numbers(Handler):
    def decode(self, item: Any) -> Any:
        if item == "stop":
            raise RuntimeError("no")
        return int(item)

    def inference(self, data: Any) -> Any:
        return [10 / number for number in data]

    def encode(self, output: Any) -> Any:
        return f"{output:d}" if output > 5 else output


def test_the_default_stages_replace_an_item_that_fails_by_its_error() -> None:
    first, second, third = Numbers().preprocess(["1", "x", "stop"])
    assert first == 1
    assert isinstance(second, Unreadable)
    assert isinstance(second, InvalidInput)
    assert str(second).startswith("the input could not be read: ValueError: invalid literal")
    assert isinstance(third, RuntimeError)
    assert [type(value) for value in Numbers().postprocess([1.0, 10.0])] == [float, ValueError]


def test_a_handler_without_inference_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Handler must define inference"):
        Handler().inference([])
