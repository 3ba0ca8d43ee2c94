"""What a handler gave or raised, as TorchServe and MMS would answer it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import HandlerFailed
from shoal.upstream.ts.utils.util import PredictionException
from shoal.worker.items import Written
from shoal.worker.upstream_answers import Flavour, is_out_of_memory, refused, write, written
from tests.unit.worker.making import inline

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20)
KEYS = st.text(max_size=8) | st.integers() | st.none() | st.booleans()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)


@given(VALUES.filter(lambda value: not isinstance(value, str)))
def test_json_is_written_as_pythons_own(value: Any) -> None:
    assert write(value) == Written(json.dumps(value, indent=2).encode())


@given(st.binary(), st.text())
def test_bytes_and_text_are_as_they_are(data: bytes, text: str) -> None:
    assert written([data, bytearray(data), text], 3) == [
        Written(data),
        Written(bytearray(data)),
        Written(text.encode()),
    ]


class Shy:
    """Cannot be looked at."""

    def __repr__(self) -> str:
        raise ValueError("do not look")

    __str__ = __repr__


class ShyError(Exception):
    """Cannot be looked at either."""

    def __str__(self) -> str:
        raise ValueError("do not look")


@pytest.mark.parametrize("value", [object(), {1}, {"a": b"x"}, Shy(), ValueError("x"), "\ud800"])
def test_what_has_no_form_is_unsupported(value: Any) -> None:
    with pytest.raises(HandlerFailed, match=r"^Unsupported model output data type\.$") as failed:
        written(["fine", value], 2)
    assert failed.value.status == 503


def test_a_list_in_itself_is_unsupported() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(HandlerFailed, match="Unsupported"):
        write(endless)


def test_no_content_type_is_said_of_each_answer() -> None:
    results, listener = inline(lambda items: [Written(item) for item in items], b"a", b"b")

    assert results == [b"a", b"b"]
    assert listener.ends[0].content_types == ["", ""]  # one for all would mean a type that all of them have


@pytest.mark.parametrize(
    ("result", "message", "told"),
    [
        (None, "Invalid model predict output", "gave nothing"),
        (("a",), "Invalid model predict output", "type tuple"),
        (["a", "b"], "number of batch response mismatched", "2 results for 1 requests"),
        ([], "number of batch response mismatched", "0 results for 1 requests"),
    ],
)
def test_one_result_for_each_request_is_wanted(result: Any, message: str, told: str) -> None:
    with pytest.raises(HandlerFailed, match=f"^{message}$") as failed:
        written(result, 1)
    assert failed.value.status == 503
    assert told in failed.value.traceback


class CudaOutOfMemoryError(RuntimeError):
    """Speaks of CUDA."""


@pytest.mark.parametrize(
    ("error", "flavour", "status", "message"),
    [
        (ValueError("x"), "torchserve", 503, "Prediction failed"),
        (MemoryError(), "torchserve", 507, "Out of resources"),
        (MemoryError(), "mms", 507, "Out of resources"),
        (KeyError("no CUDA here"), "torchserve", 507, "Out of resources"),
        (KeyError("no CUDA here"), "mms", 503, "Prediction failed"),
        (ShyError(), "torchserve", 503, "Prediction failed"),
        (PredictionException("no", 404), "torchserve", 404, "no"),
        (PredictionException("CUDA", 404), "torchserve", 404, "CUDA"),
        (PredictionException("no"), "mms", 500, "no"),
        (PredictionException("no", "x"), "mms", 500, "no"),  # type: ignore[arg-type]
        (PredictionException("no", 413), "mms", 413, "no"),
        (KeyboardInterrupt(), "mms", 503, "Prediction failed"),
    ],
)
def test_exceptions_have_upstreams_status_and_words(
    error: BaseException, flavour: Flavour, status: int, message: str
) -> None:
    failed = refused(error, flavour)

    assert (failed.status, str(failed)) == (status, message)
    assert type(error).__name__ in failed.traceback


def test_our_own_failure_passes_through_a_handler_unchanged() -> None:
    failed = HandlerFailed("as it is", status=500)

    assert refused(failed, "torchserve") is failed


def test_memory_is_short_where_an_error_says_so() -> None:
    assert is_out_of_memory(CudaOutOfMemoryError("CUDA out of memory"), "torchserve")
    assert not is_out_of_memory(ValueError("x"), "torchserve")
