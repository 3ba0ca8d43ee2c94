"""Handlers written for TorchServe and MMS in real worker processes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.wire.messages import Failure, Item, Load, Measure, PartHead, Piece, Unloadable
from tests.process.worker_front import worker
from tests.unit.upstream.fronts import MODELS, Told, Upstream, upstream

MODEL = [("ModelName", "m"), ("Level", "Model")]


def bodies(told: list[Told | Failure]) -> list[Any]:
    assert not any(isinstance(one, Failure) for one in told), told
    return [json.loads(one.body) for one in told if isinstance(one, Told)]


def failures(told: list[Told | Failure]) -> list[tuple[int, str]]:
    assert all(isinstance(one, Failure) for one in told), told
    return [(one.status, one.message) for one in told if isinstance(one, Failure)]


def scripted(folder: Path) -> Path:
    """An archive of a TorchScript model with one of TorchServe's own handlers."""
    torch = pytest.importorskip("torch")
    model = {"modelName": "double", "serializedFile": "double.pt", "handler": "base_handler", "modelVersion": "1.0"}
    (folder / "MAR-INF").mkdir()
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"model": model}))
    linear = torch.nn.Linear(2, 1, bias=False)
    linear.weight.data.fill_(2.0)
    torch.jit.trace(linear, torch.zeros(1, 2)).save(str(folder / "double.pt"))
    return folder


# -- rows in ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tricks() -> Any:
    with upstream("tricks", parameters={"bees": 3}, batching={"batch_size": 8}, environment={"BEES": "many"}) as made:
        yield made


@pytest.mark.parametrize(
    ("kind", "body", "seen"),
    [
        ("application/json; charset=utf-8", b"[1]", "list [1]"),
        ("application/json", b"{broken", "bytearray bytearray(b'{broken')"),
        ("text/csv", b"a,b", "str a,b"),
        ("text/plain", b"\xff", r"bytearray bytearray(b'\xff')"),
        ("", b"raw", "bytearray bytearray(b'raw')"),
    ],
)
def test_rows_are_decoded_by_content_type(tricks: Upstream, kind: str, body: bytes, seen: str) -> None:
    assert bodies(tricks.ask(body, kind=kind)) == [{"body": seen}]


def test_parts_of_a_form_are_keys_of_the_row(tricks: Upstream) -> None:
    item = Item([PartHead("a", "", 1), PartHead("file", "application/json", 2)], b"id", [])

    assert bodies(tricks.send([item], [b"1", b"[]"])) == [{"a": "bytearray bytearray(b'1')", "file": "list []"}]


def test_nothing_is_decoded_where_that_is_switched_off() -> None:
    with upstream("tricks", decode_input=False) as front:
        assert bodies(front.ask(b"[1]")) == [{"body": "bytearray bytearray(b'[1]')"}]


def test_headers_are_as_the_client_spelt_them_with_an_entry_for_each_part(tricks: Upstream) -> None:
    body = json.dumps({"act": "headers"}).encode()
    sent = [(b"X-Bee", b"1"), (b"Content-Length", b"18"), (b"ts_request_sequence_id", b"s"), (b"b", b"real")]
    parts = [
        PartHead("body", "application/json; charset=utf-8", len(body)),
        PartHead("b", "text/plain", 1),
        PartHead("c", "", 1),
    ]
    (said,) = bodies(tricks.send([Item(parts, b"id-7", sent)], [body, b"x", b"y"]))

    assert said["all"] == {
        "body": {"content-type": "application/json"},
        "b": "real",
        "c": {"content-type": ""},
        "X-Bee": "1",
        "Content-Length": "18",
        "ts_request_sequence_id": "s",
    }
    assert (said["id"], said["exact"], said["other case"], said["sequence"]) == ("id-7", "1", None, "s")


def test_the_context_and_the_process_are_as_upstreams(tricks: Upstream) -> None:
    (said,) = bodies(tricks.ask({"act": "about"}))

    assert said == {
        "name": "m",
        "manifest": "2.5",
        "yaml": {"bees": 3},
        "properties": {
            "gpu_id": None,
            "batch_size": 8,
            "server_name": "MMS",
            "server_version": "0.12.0",
            "limit_max_image_pixels": True,
        },
        "at home": True,
        "is context": True,
        "processors": 1,
        "criteria": None,
        "decode": "true",
        "pickle": "0",
        "bees": "many",
        "path": said["path"],
    }
    assert said["path"] == 2  # behind the current folder and PYTHONPATH, which has one entry here


def test_what_a_handler_hangs_on_the_context_stays_and_headers_do_not(tricks: Upstream) -> None:
    assert bodies(tricks.ask({"act": "remember"})) == [[1, ["x-1"], True]]
    assert bodies(tricks.ask({"act": "remember"})) == [[2, ["x-2"], True]]


# -- results out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("bytes", b"\x00\xff"),
        ("bytearray", b"array"),
        ("text", "caf\u00e9".encode()),
        ("none", b"null"),
        ("number", b"7"),
        ("nan", b"[\n  NaN\n]"),
        ("nested", json.dumps({"a": {"b": [1, 2.5, True]}, "\u00e9": []}, indent=2).encode()),
    ],
)
def test_results_are_written_as_upstream_writes_them_without_a_content_type(
    tricks: Upstream, kind: str, body: bytes
) -> None:
    assert tricks.ask(*[{"act": "give", "kind": kind}] * 2) == [Told(body)] * 2


def test_a_tensor_is_saved(tricks: Upstream) -> None:
    torch = pytest.importorskip("torch")
    (told,) = tricks.ask({"act": "give", "kind": "tensor"})

    assert isinstance(told, Told)
    assert torch.load(io.BytesIO(told.body)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["object", "set", "numpy"])
def test_one_result_that_cannot_be_written_fails_the_batch(tricks: Upstream, kind: str) -> None:
    told = tricks.ask({"act": "give", "kind": "text"}, {"act": "give", "kind": kind})

    assert failures(told) == [(503, "Unsupported model output data type.")] * 2
    assert "cannot be sent" in told[0].traceback  # type: ignore[union-attr]


@pytest.mark.parametrize("gift", ["none", "dict", "tuple", "text", "generator"])
def test_what_is_no_list_fails_the_batch(tricks: Upstream, gift: str) -> None:
    assert failures(tricks.ask({"act": "whole", "gift": gift}, {})) == [(503, "Invalid model predict output")] * 2


def test_another_number_of_results_fails_the_batch(tricks: Upstream) -> None:
    told = tricks.ask({"act": "whole", "gift": "more"}, {})

    assert failures(told) == [(503, "number of batch response mismatched")] * 2


def test_each_answer_has_its_own_status_headers_and_type(tricks: Upstream) -> None:
    told = tricks.ask({"act": "status"}, {}, {})

    assert told == [
        Told(b"fine", "image/png"),
        Told(b"missing", "", 404, "not this one", (("X-Bees", "3"),)),
        Told(b"fine too"),
    ]


def test_an_answer_over_the_limit_fails_alone() -> None:
    with worker() as front:
        front.receive()
        config = {"name": "m", "path": str(MODELS / "tricks"), "flavour": "torchserve"}
        front.send(Load(config, "w", False, 100))
        front.receive()
        told = Upstream(front).ask({"act": "give", "kind": "long"}, {"act": "give", "kind": "text"})

    assert isinstance(told[0], Failure) and "1000 bytes is over the limit of 100" in told[0].message
    assert told[1] == Told("caf\u00e9".encode())


# -- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "status", "message"),
    [
        ({"act": "refuse", "text": "no bees"}, 500, "no bees"),
        ({"act": "refuse", "text": "no bees", "code": 599}, 599, "no bees"),
        ({"act": "refuse", "text": "too large", "code": 413}, 413, "too large"),
        ({"act": "fail", "kind": "value", "text": "x"}, 503, "Prediction failed"),
        ({"act": "fail", "kind": "memory", "text": "x"}, 507, "Out of resources"),
        ({"act": "fail", "kind": "runtime", "text": "CUDA error: bees"}, 507, "Out of resources"),
        ({"act": "fail", "kind": "value", "text": "about CUDA"}, 507, "Out of resources"),
    ],
)
def test_an_exception_fails_the_whole_batch(tricks: Upstream, wish: Any, status: int, message: str) -> None:
    told = tricks.ask(wish, {})

    assert failures(told) == [(status, message)] * 2
    assert 'tricks_handler.py", line' in told[0].traceback  # type: ignore[union-attr]
    assert "shoal/worker" not in told[0].traceback  # type: ignore[union-attr]


def test_a_handler_that_exits_ends_its_worker() -> None:
    with upstream("tricks") as made:
        made.front.run(1, json.dumps({"act": "leave", "code": 3}).encode(), content_type="application/json")
        assert made.front.receive()[0] is None
        assert made.front.exit_code() == 3
        assert made.front.process.stdout is not None
        assert "leaving" in made.front.process.stdout.read()


# -- streams ------------------------------------------------------------------------------------------------------


def test_pieces_leave_before_the_answer(tricks: Upstream) -> None:
    told = tricks.ask({"act": "stream", "pieces": ["a", {"b": 1}, None]}, {})

    assert [one.body for one in told if isinstance(one, Told)] == [b'a{\n  "b": 1\n}nullend'] * 2
    assert told[0] == Told(
        told[0].body,  # type: ignore[union-attr]
        headers=(("x-first", "yes"), ("ts_stream_next", "true")),
        pieces=4,
    )


def test_the_last_piece_says_so(tricks: Upstream) -> None:
    tricks.front.run(500, json.dumps({"act": "stream", "pieces": ["a"]}).encode(), content_type="application/json")
    pieces: list[Piece] = []
    for _ in range(4):
        report, _ = tricks.front.receive()
        pieces += getattr(report, "pieces", [])

    assert [(dict(piece.headers)["ts_stream_next"], piece.is_last) for piece in pieces] == [
        ("true", False),
        ("false", True),
    ]


def test_a_piece_with_another_code_fails_the_batch(tricks: Upstream) -> None:
    assert failures(tricks.ask({"act": "stream", "pieces": ["a"], "code": 500}, {})) == [(500, "more")] * 2


# -- metrics ------------------------------------------------------------------------------------------------------


def test_metrics_leave_once_for_a_batch(tricks: Upstream) -> None:
    tricks.ask({"act": "measure"}, {})
    measured = {(measure.name, measure.kind): measure for measure in tricks.measures}

    assert measured["Bees", "COUNTER"] == Measure("Bees", "Count", "COUNTER", 5, MODEL, "id-0,id-1")
    assert measured["Flight", "GAUGE"] == Measure("Flight", "Seconds", "GAUGE", 1.5, MODEL, "id-0")
    assert measured["Hive", "GAUGE"].value == 8
    assert measured["Hive", "GAUGE"].dimensions == [("Tree", "oak"), *MODEL]
    assert measured["Stings", "COUNTER"] == Measure("Stings", "unit", "COUNTER", 1, [("Level", "Error")], "")
    assert measured["Own", "COUNTER"] == Measure("Own", "Count", "COUNTER", 1, [("Wing", "left")], "")
    assert [measure.name for measure in tricks.measures].count("Full") == 2
    assert measured["PredictionTime", "GAUGE"].unit == "Milliseconds"
    assert measured["PredictionTime", "GAUGE"].dimensions == MODEL
    assert len(tricks.measures) == 8


def test_a_batch_reports_only_what_changed(tricks: Upstream) -> None:
    tricks.ask({"act": "measure"})
    tricks.ask({})

    assert [measure.name for measure in tricks.measures] == ["PredictionTime"]


def test_a_metrics_file_declares_what_handlers_look_up(tmp_path: Path) -> None:
    (tmp_path / "metrics.yaml").write_text("model_metrics: {gauge: [{name: Known, unit: ms, dimensions: [Wing]}]}")
    (tmp_path / "h.py").write_text(
        "from ts.metrics.metric_type_enum import MetricTypes\n"
        "def handle(data, context):\n"
        "    context.metrics.get_metric('Known', MetricTypes.GAUGE).add_or_update(1, ['left'])\n"
        "    return data and ['ok']\n"
    )
    with upstream(tmp_path, handler="h", environment={"TS_METRICS_CONFIG": str(tmp_path / "metrics.yaml")}) as front:
        first, _ = front.front.receive()
        assert [measure.name for measure in first.measures] == ["Known"]  # noted while it was initialised


# -- forms of handlers --------------------------------------------------------------------------------------------


def test_a_class_of_its_own_is_initialised_and_called() -> None:
    with upstream("plain_class", parameters={"factor": 3}) as front:
        assert bodies(front.ask(1, 2)) == [{"doubled": 3}, {"doubled": 6}]


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        ("", b"predicted"),
        ("functions:other", b"other"),
        ("/home/somebody/functions.py:other", b"other"),
        ("functions.py:later", b"later"),
    ],
)
def test_a_function_is_called_by_the_name_it_is_given(handler: str, answer: bytes) -> None:
    with upstream("functions", handler=handler) as front:
        assert front.ask(1, 2) == [Told(answer)] * 2


def test_micro_batches_keep_their_order_and_see_the_batch() -> None:
    settings = {
        "micro_batching": {"micro_batch_size": 2, "parallelism": {"preprocess": 2, "inference": 1}},
        "handler": {"profile": True},
    }
    with upstream("micro", parameters=settings) as front:
        assert bodies(front.ask("a", "b", "c")) == [
            ["a", 0, 2, "id-0", True],
            ["b", 0, 2, "id-0", True],
            ["c", 1, 1, "id-0", True],
        ]
        assert {"HandlerTime", "ts_handler_preprocess", "PredictionTime"} == {one.name for one in front.measures}
        assert failures(front.ask("a", "b", "boom", "d")) == [(503, "Prediction failed")] * 4
        assert front.ask("a", headers=[(b"describe", b"True")]) == [Told(b"described")]
        assert bodies(front.ask("a", "b", headers=[(b"explain", b"True")])) == [["explained", None]] * 2
        assert bodies(front.ask("z")) == [["z", 0, 1, "id-0", True]]


@pytest.mark.parametrize(
    ("envelope", "body", "answer"),
    [
        ("body", [1, 2], b"[\n  1,\n  2\n]"),
        ("json", {"instances": [1, 2]}, b'{"predictions": [1, 2]}'),
        ("kserve", {"instances": [1]}, json.dumps({"predictions": [1]}, indent=2).encode()),
    ],
)
def test_an_envelope_stands_around_the_handler(envelope: str, body: Any, answer: bytes) -> None:
    with upstream("instances", envelope=envelope) as front:
        assert front.ask(body) == [Told(answer)]


@pytest.mark.parametrize("envelope", ["json", "kserve", "kservev2"])
def test_what_an_envelope_cannot_open_fails_the_batch(envelope: str) -> None:
    with upstream("instances", envelope=envelope) as front:
        assert failures(front.ask("not for an envelope", {})) == [(503, "Prediction failed")] * 2


def test_kserves_second_protocol_answers_with_the_models_name() -> None:
    entry = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    with upstream("instances", envelope="kservev2") as front:
        (said,) = bodies(front.ask({"id": "q", "inputs": [entry]}))
        assert (said["id"], said["model_name"], said["model_version"]) == ("q", "instances", "3.0")
        both = front.ask({"inputs": [entry]}, {"inputs": [entry]})
        assert failures(both) == [(503, "number of batch response mismatched")] * 2


def test_several_instances_share_one_handler() -> None:
    with upstream("tricks", instances=2) as front:
        assert bodies(front.ask({"act": "remember"})) == [[1, ["x-1"], True]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_brought_handler_serves_a_scripted_model(tmp_path: Path) -> None:
    with upstream(scripted(tmp_path), envelope="body") as front:
        assert bodies(front.ask([1, 2], [3, 4.5])) == [[6.0], [15.0]]
        assert {"HandlerTime", "PredictionTime"} <= {measure.name for measure in front.measures}


# -- mms ----------------------------------------------------------------------------------------------------------


def test_an_mms_handler_finds_its_modules() -> None:
    with upstream("mms_tricks", flavour="mms") as front:
        assert bodies(front.ask(1, b"{broken")) == [
            ["int", True, "1.1.11", 5],
            ["bytearray", True, "1.1.11", 5],
        ]
        measured = {measure.name: measure for measure in front.measures}
        assert measured["Buzz"] == Measure("Buzz", "Milliseconds", "GAUGE", 4, [("Wing", "left"), *MODEL], "id-0,id-1")
        assert measured["Bees"] == Measure("Bees", "Count", "COUNTER", 2, MODEL, "id-0,id-1")
        assert measured["PredictionTime"].value >= 0
        assert failures(front.ask({"refuse": "no bees"}, {})) == [(513, "no bees")] * 2
        assert failures(front.ask({"fail": "about CUDA"}, {})) == [(503, "Prediction failed")] * 2


def test_an_archive_of_mms_0_is_loaded() -> None:
    with upstream("mms_legacy", flavour="mms") as front:
        item = Item([PartHead("flower", "", 3)], b"id", [])
        assert bodies(front.send([item], [b"[7]"])) == [{"name": "old", "data": [[7]]}]


def test_the_other_servers_name_is_left_to_a_module_of_the_models_own(tmp_path: Path) -> None:
    (tmp_path / "ts.py").write_text("series = 'time'")
    (tmp_path / "h.py").write_text("import ts\ndef handle(data, context):\n    return data and [ts.series]\n")
    with upstream(tmp_path, flavour="mms", handler="h.py:handle") as front:
        assert front.ask(1) == [Told(b"time")]


# -- loading that fails ---------------------------------------------------------------------------------------------


def refused(path: Path, **config: Any) -> Unloadable:
    with worker() as front:
        word = front.load(path, **{"flavour": "torchserve", **config})
        assert isinstance(word, Unloadable), word
        assert front.exit_code() == 1
        return word


def test_a_folder_without_a_handler_says_so(tmp_path: Path) -> None:
    assert "names a handler" in refused(tmp_path).message
    assert "does not exist" in refused(tmp_path / "nothing").message


@pytest.mark.parametrize("model", ['{"handler": 3}', "[]", "null", "{}"])
def test_a_manifest_that_names_no_handler_says_so(tmp_path: Path, model: str) -> None:
    (tmp_path / "MAR-INF").mkdir()
    (tmp_path / "MAR-INF" / "MANIFEST.json").write_text(f'{{"model": {model}}}')

    assert "names a handler" in refused(tmp_path).message


def test_a_handler_leads_nowhere_out_of_the_models_folder(tmp_path: Path) -> None:
    for folder in ("model", "other", "model/inside"):
        (tmp_path / folder).mkdir()
    (tmp_path / "other" / "bees.py").write_text("def handle(data, context):\n    return data\n")
    (tmp_path / "model" / "inside" / "wasps.py").write_text("def handle(data, context):\n    return data and ['in']\n")

    assert "no module is named 'bees'" in refused(tmp_path / "model", handler="../other/bees.py:handle").message
    with upstream(tmp_path / "model", handler="inside/wasps.py:handle") as front:
        assert front.ask(1) == [Told(b"in")]


def test_a_module_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    (tmp_path / "bees.py").write_text("")
    message = refused(tmp_path, handler="wasps").message

    assert "no module is named 'wasps'" in message
    assert "bees.py" in message and "image_classifier" in message
    assert "image_classifier" not in refused(tmp_path, handler="wasps", flavour="mms").message


def test_an_import_error_inside_the_handler_shows_its_line(tmp_path: Path) -> None:
    (tmp_path / "bees.py").write_text("import os\nimport torhc\n")
    word = refused(tmp_path, handler="bees.py")

    assert word.message == "bees.py line 2: No module named 'torhc'"
    assert "import torhc" in word.traceback


def test_the_original_error_is_shown_where_the_brought_handler_fails_too(tmp_path: Path) -> None:
    (tmp_path / "vision_handler.py").write_text("import torhc\n")
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")

    assert refused(tmp_path, handler="vision_handler").message == "vision_handler.py line 1: No module named 'torhc'"


def test_a_brought_handler_that_fails_shows_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")

    assert "no torch here" in refused(tmp_path, handler="base_handler").message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\n", "exactly one class; it defines no class"),
        ("class A: pass\nclass B: pass\n", "exactly one class; it defines A, B"),
        ("class A:\n    def initialize(self, c): pass\n", "handle is missing"),
        ("class A:\n    def handle(self, d, c): pass\n", "initialize is missing"),
        ("handle = 3\n", "must be a function"),
        ("raise SystemExit(2)\n", "bees.py line 1: SystemExit: 2"),
        (
            "def handle(data, context):\n    raise KeyError('x')\n",
            "bees.py line 2: handle could not be initialised: KeyError",
        ),
        ("class A:\n    def __init__(self): 1/0\n", "bees.py line 2: A could not be initialised: ZeroDivisionError"),
        (
            "class A:\n    def handle(self, d, c): pass\n    def initialize(self, c):\n        open('nope')\n",
            "bees.py line 4: A could not be initialised: FileNotFoundError",
        ),
    ],
)
def test_what_is_no_handler_says_why(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "bees.py").write_text(source)
    word = refused(tmp_path, handler="bees")

    assert words in word.message
    assert not word.is_out_of_memory


def test_an_mms_service_that_fails_to_initialise_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "bees.py").write_text("class A:\n    def handle(s, d, c): pass\n    def initialize(s, c): 1/0\n")

    assert "A could not be initialised" in refused(tmp_path, handler="bees", flavour="mms").message


@pytest.mark.parametrize("raised", ["MemoryError", "RuntimeError('CUDA out of memory')"])
def test_memory_that_ran_out_is_told_apart(tmp_path: Path, raised: str) -> None:
    (tmp_path / "bees.py").write_text(f"def handle(data, context):\n    raise {raised}\n")

    word = refused(tmp_path, handler="bees")
    assert word.is_out_of_memory and word.is_temporary


def test_a_file_named_like_a_module_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "socket.py").write_text("def handle(data, context): return data\n")

    assert "name of a module that is in use" in refused(tmp_path, handler="socket.py").message


def test_a_manifest_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "MAR-INF").mkdir()
    (tmp_path / "MAR-INF" / "MANIFEST.json").write_text("{")

    assert "MANIFEST.json is not valid JSON" in refused(tmp_path).message


def test_a_brought_handler_is_used_where_the_file_of_that_name_cannot_be_imported(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "base_handler.py").write_text("import torhc\n")
    message = refused(tmp_path, handler="base_handler").message

    assert "BaseHandler could not be initialised" in message


def test_what_handlers_log_is_output(tmp_path: Path) -> None:
    with upstream("tricks") as front:
        front.front.stop()
        assert front.front.process.stdout is not None
        assert "initialised quietly" in front.front.process.stdout.read()
