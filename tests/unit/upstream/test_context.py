"""The context as users' own tests make it."""

from typing import Any

import pytest

from shoal.upstream.mms.context import Context as MmsContext
from shoal.upstream.ts.context import Context, RequestProcessor


@pytest.fixture
def context() -> Context:
    made = Context("bees", "/models/bees", {"model": {}}, 4, 0, "0.12.0")
    made.request_ids = {0: "a", 1: "b"}
    made.request_processor = [RequestProcessor({"X-Bee": "1", "ts_request_sequence_id": "s"}), RequestProcessor({})]
    return made


def test_it_says_what_it_was_made_with(context: Context) -> None:
    assert context.model_name == "bees"
    assert context.manifest == {"model": {}}
    assert context.system_properties == {
        "model_dir": "/models/bees",
        "gpu_id": 0,
        "batch_size": 4,
        "server_name": "MMS",
        "server_version": "0.12.0",
        "limit_max_image_pixels": True,
    }
    assert context.model_yaml_config is None
    assert context.metrics is None
    assert context.stopping_criteria is None


def test_ids_are_found_by_index(context: Context) -> None:
    assert [context.get_request_id(), context.get_request_id(1), context.get_request_id(9)] == ["a", "b", None]


def test_headers_are_looked_up_as_they_are_spelt(context: Context) -> None:
    assert context.get_request_header(0, "X-Bee") == "1"
    assert context.get_request_header(0, "x-bee") is None
    assert context.get_all_request_header(1) == {}
    assert [context.get_sequence_id(0), context.get_sequence_id(1)] == ["s", None]
    with pytest.raises(IndexError):
        context.get_request_header(2, "X-Bee")


def test_what_is_said_of_one_answer_is_said_of_that_one(context: Context) -> None:
    context.set_response_content_type(0, "image/png")
    context.set_response_header(1, "x", "y")
    context.set_response_status(404, "gone", 1)

    assert context.get_response_content_type(0) == "image/png"
    assert [context.get_response_headers(index) for index in (0, 1)] == [{"content-type": "image/png"}, {"x": "y"}]
    assert [context.get_response_status(index) for index in (0, 1)] == [(200, None), (404, "gone")]


def test_a_status_can_be_said_of_all(context: Context) -> None:
    context.set_all_response_status(503, "busy")

    assert [context.get_response_status(index) for index in (0, 1)] == [(503, "busy")] * 2


def test_the_first_answer_is_meant_where_none_is_named(context: Context) -> None:
    context.set_response_status(201)

    assert context.get_response_status(0) == (201, "")


def test_a_context_equals_itself_and_no_other(context: Context) -> None:
    other = Context("bees", "/models/bees", {"model": {}}, 4, 0, "0.12.0")

    assert context == context
    assert context != other
    assert context != 3
    with pytest.raises(TypeError):
        hash(context)


def test_a_processor_tells_and_is_told() -> None:
    processor = RequestProcessor({"a": "b"})
    assert processor.get_request_property("a") == "b"
    assert processor.get_request_properties() == {"a": "b"}
    processor.report_status(500)
    processor.add_response_property("x", "y")

    said: Any = (processor.get_response_status_code(), processor.get_response_status_phrase())
    assert said == (500, None)
    assert processor.get_response_headers() == {"x": "y"}
    assert processor.get_response_header("x") == "y"
    assert processor.get_response_header("z") is None


def test_mms_says_the_same_without_pixels() -> None:
    context = MmsContext("bees", "/models/bees", {}, 1, None, "1.1.11")

    assert isinstance(context, Context)
    assert set(context.system_properties) == {"model_dir", "gpu_id", "batch_size", "server_name", "server_version"}
