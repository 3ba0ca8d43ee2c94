import pytest

from shoal.errors import InvalidInput
from shoal.tools.bench.target import is_address, read_headers, request_of, target_of
from shoal.tools.samples import Sample


def url(text: str, model: str = "", *, tensors: bool = False) -> str:
    return target_of(text, model, {}, verifies=True, tensors=tensors).url


def test_a_model_is_named_by_the_path_or_by_itself() -> None:
    assert url("http://h:1/predictions/m") == "http://h:1/predictions/m"
    assert url("http://h:1", "a b") == "http://h:1/predictions/a%20b"
    assert url("http://h:1/v1/models/m:predict") == "http://h:1/v1/models/m:predict"
    assert target_of("http://h:1/v1/models/m:predict", "", {}, verifies=True, tensors=False).model == "m"


def test_tensors_go_to_the_open_inference_route() -> None:
    assert url("http://h:1/predictions/m", tensors=True) == "http://h:1/v2/models/m/infer"
    assert url("http://h:1", "m", tensors=True) == "http://h:1/v2/models/m/infer"


def test_an_address_without_a_model_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInput, match="add --model NAME"):
        url("http://h:1")


@pytest.mark.parametrize(
    ("text", "is_one"), [("http://x", True), ("localhost:8080/x", True), ("model.py", False), ("a/b.mar", False)]
)
def test_addresses_are_told_from_files(text: str, is_one: bool) -> None:
    assert is_address(text) is is_one


def test_a_request_is_ready_to_be_sent() -> None:
    target = target_of("http://h:1/p", "", {"Authorization": "Bearer k"}, verifies=True, tensors=False)

    assert request_of(target, Sample(b"{}", "application/json", "text")) == (
        b"POST /p HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        b"Authorization: Bearer k\r\n\r\n{}"
    )


def test_headers_are_read_and_cannot_carry_others() -> None:
    assert read_headers(["X-A: b:c"], "k") == {"Authorization": "Bearer k", "X-A": "b:c"}
    for text in ("x", "a b: c", ": c", "a: b\r\nc: d"):
        with pytest.raises(InvalidInput, match="Name: value"):
            read_headers([text], "")
