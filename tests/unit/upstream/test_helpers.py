"""The small things handlers import: timed, import_class, the streamer, the mock context, the services."""

import threading
from pathlib import Path
from typing import Any

import pytest

from shoal.upstream.mms import service as mms_service
from shoal.upstream.mms.context import Context as MmsContext
from shoal.upstream.mms.model_service.model_service import ModelService, SingleNodeService
from shoal.upstream.ts import service, version
from shoal.upstream.ts.context import Context
from shoal.upstream.ts.handler_utils.hf_batch_streamer import TextIteratorStreamerBatch
from shoal.upstream.ts.handler_utils.timer import timed
from shoal.upstream.ts.handler_utils.utils import import_class, send_intermediate_predict_response
from shoal.upstream.ts.metrics.metrics_store import MetricsStore
from shoal.upstream.ts.protocol import otf_message_handler
from shoal.upstream.ts.torch_handler.unit_tests.test_utils.mock_context import MockContext
from shoal.upstream.ts.utils.util import PredictionException


class Timed:
    def __init__(self, settings: Any) -> None:
        self.context = Context(
            "m", "/", {}, 1, None, "", metrics=MetricsStore({0: "r"}, "m"), model_yaml_config=settings
        )

    @timed
    def preprocess(self, data: Any) -> Any:
        """Give it back."""
        return data


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"handler": {"profile": True}}, ["ts_handler_preprocess"]),
        ({"handler": {"profile": False}}, []),
        ({"handler": {}}, []),
        ({"handler": "profile"}, []),
        ({}, []),
        (None, []),
    ],
)
def test_a_stage_is_timed_where_the_settings_ask_for_it(settings: Any, names: list[str]) -> None:
    handler = Timed(settings)

    assert handler.preprocess([1]) == [1]
    assert [metric.name for metric in handler.context.metrics.store] == names
    assert Timed.preprocess.__name__ == "preprocess"


def test_a_class_is_found_by_its_name() -> None:
    assert import_class("shoal.upstream.ts.context.Context") is Context
    assert import_class("context.Context", "shoal.upstream.ts") is Context


@pytest.mark.parametrize("name", ["Context", "shoal.upstream.ts.context.Nothing", "shoal.upstream.ts.nothing.X"])
def test_a_class_that_is_not_there_is_an_import_error(name: str) -> None:
    with pytest.raises(ImportError):
        import_class(name)


def test_pieces_cannot_be_sent_outside_a_worker() -> None:
    context = Context("m", "/", {}, 1, None, "")
    with pytest.raises(RuntimeError, match="inside a worker"):
        send_intermediate_predict_response(["a"], {0: "r0"}, "more", 200, context)


def test_the_old_home_of_pieces_says_that_it_moved() -> None:
    sent: list[Any] = []
    context = Context("m", "/", {}, 1, None, "")
    context._send_pieces = lambda *piece: sent.append(piece)  # type: ignore[attr-defined]
    with pytest.warns(PendingDeprecationWarning, match=r"ts\.handler_utils\.utils"):
        otf_message_handler.send_intermediate_predict_response(["a", "b"], {1: "r1"}, "more", 200, context)

    assert sent == [({1: "b"}, "more", 200)]


class Words:
    """A tokenizer whose tokens are bytes."""

    def decode(self, tokens: list[int], skip: int = 0) -> str:
        return bytes(token for token in tokens if token != skip).decode(errors="replace")


def test_the_streamer_gives_new_text_of_every_sequence() -> None:
    streamer = TextIteratorStreamerBatch(Words(), batch_size=2, skip_prompt=True, timeout=20)
    streamer.put([list(b"prompt one"), list(b"prompt two")])
    for pair in zip(b"Hi \xc3\xa9!", b"Bees\x00\x00", strict=True):
        streamer.put(list(pair))
    streamer.end()
    steps = list(streamer)

    assert ["".join(texts) for texts in zip(*steps, strict=True)] == ["Hi \u00e9!", "Bees"]
    assert not any("\ufffd" in text for step in steps for text in step)


def test_the_streamer_gives_the_prompt_unless_told_to_skip_it() -> None:
    streamer = TextIteratorStreamerBatch(Words(), timeout=20)
    streamer.put([list(b"ask ")])
    streamer.put([ord("a")])
    streamer.end()

    assert "".join(step[0] for step in streamer) == "ask a"


def test_the_streamer_waits_for_the_thread_that_generates() -> None:
    streamer = TextIteratorStreamerBatch(Words(), batch_size=1, skip_prompt=True, timeout=20)

    def generate() -> None:
        for value in ([[1]], [65], [66]):
            streamer.put(value)
        streamer.end()

    thread = threading.Thread(target=generate)
    thread.start()
    text = "".join(step[0] for step in streamer)
    thread.join()

    assert text == "AB"


def test_the_streamer_refuses_another_number_of_sequences() -> None:
    with pytest.raises(ValueError, match="2 sequences, and 1 came"):
        TextIteratorStreamerBatch(Words(), batch_size=2).put([[1]])


def test_the_mock_context_says_where_files_are(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("pt2: {}\n")
    context = MockContext("w.pt", str(tmp_path), None, model_yaml_config_file="model.yaml")

    assert context.manifest == {"model": {"serializedFile": "w.pt"}}
    assert context.system_properties == {"model_dir": str(tmp_path)}
    assert context.model_yaml_config == {"pt2": {}}
    assert context.get_request_header(0, "describe") is False
    context.explain = True
    assert context.get_request_header(0, "explain") is True
    assert MockContext().model_yaml_config == {}


def test_services_bring_a_context_of_their_kind() -> None:
    theirs = service.Service("m", "/d", {"a": 1}, print, 1, 8)
    old = mms_service.Service("m", "/d", None, print, None, 2)

    assert type(theirs.context) is Context and type(old.context) is MmsContext
    assert theirs.context.system_properties["batch_size"] == 8
    assert old.context.system_properties["server_version"] == "1.1.11"
    assert version.__version__ == "0.12.0"


def test_both_servers_raise_one_exception() -> None:
    error = service.PredictionException("no bees", 513)

    assert mms_service.PredictionException is service.PredictionException is PredictionException
    assert (str(error), error.message, error.error_code) == ("no bees : 513", "no bees", 513)


class Old(SingleNodeService):
    def _inference(self, data: Any) -> Any:
        return {"got": data}


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"img": b"1"}, 1),
        ({"img": 5, "body": 6}, 5),
        ({"body": b"2", "data": b"3"}, 2),
        ({"data": b"3"}, 3),
        ({"other": b"4"}, None),
    ],
)
def test_an_old_service_takes_the_input_its_signature_names(tmp_path: Path, row: Any, value: Any) -> None:
    (tmp_path / "sig.json").write_text('{"inputs": [{"data_name": "img"}], "input_type": "application/json"}')
    context = MmsContext("m", str(tmp_path), {"Model": {"Signature": "sig.json"}}, 1, None, "")
    old = Old("m", str(tmp_path), context.manifest, None)
    old.initialize(context)

    assert old.handle([row], context) == [{"got": [value]}]
    assert old.signature() == {"inputs": [{"data_name": "img"}], "input_type": "application/json"}


def test_an_old_service_needs_its_signature(tmp_path: Path) -> None:
    context = MmsContext("m", str(tmp_path), {}, 1, None, "")
    with pytest.raises(RuntimeError, match=r"signature\.json"):
        Old("m", "", None).initialize(context)


@pytest.mark.parametrize("kind", [ModelService, SingleNodeService])
def test_an_old_service_says_what_it_lacks(kind: type[ModelService]) -> None:
    with pytest.raises(NotImplementedError, match="must define"):
        kind("m", "", None).inference([1])
