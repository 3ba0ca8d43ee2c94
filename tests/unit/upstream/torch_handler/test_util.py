import json
import logging
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shoal.upstream.ts.utils.util import (
    CLEANUP_REGEX,
    PredictionException,
    check_valid_pt2_backend,
    deprecated,
    get_yaml_config,
    list_classes_from_module,
    load_label_mapping,
    map_class_to_label,
)


def labels(tmp_path: Path, content: Any) -> dict[str, str] | None:
    path = tmp_path / "index_to_name.json"
    path.write_text(json.dumps(content))
    return load_label_mapping(str(path))


@pytest.mark.parametrize(
    ("content", "mapping"),
    [
        ({"0": "cat", "1": "dog"}, {"0": "cat", "1": "dog"}),
        ({"0": ["n02", "cat"], "1": ["n03", "dog", "hound"]}, {"0": "cat", "1": "hound"}),
        ({"object_type_names": ["none", "cat"]}, {"0": "none", "1": "cat"}),
        ({"object_type_names": ["cat"], "0": "dog"}, {"0": "cat"}),
        ({}, {}),
    ],
)
def test_labels_come_in_three_forms(tmp_path: Path, content: Any, mapping: dict[str, str]) -> None:
    assert labels(tmp_path, content) == mapping


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (["cat"], "has to hold one object"),
        ({"0": 3}, "the label of class 0"),
        ({"7": []}, "the label of class 7"),
        ({"0": {"a": "b"}}, "the label of class 0"),
        ({"0": ["cat", None]}, "the label of class 0"),
    ],
)
def test_labels_in_other_forms_are_refused(tmp_path: Path, content: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        labels(tmp_path, content)


def test_missing_labels_are_logged_and_are_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_label_mapping(str(tmp_path / "index_to_name.json")) is None
    assert "is missing. Inference output will not include class name." in caplog.text


def test_probabilities_get_labels_by_position() -> None:
    rows = [[0.1, 0.9], [0.7, 0.3]]

    assert map_class_to_label(rows) == [{"0": 0.1, "1": 0.9}, {"0": 0.7, "1": 0.3}]
    assert map_class_to_label(rows, {"0": "a", "1": "b"}) == [{"a": 0.1, "b": 0.9}, {"a": 0.7, "b": 0.3}]


def test_probabilities_get_labels_by_the_classes_named_with_them() -> None:
    assert map_class_to_label([[0.9, 0.1, 0.0]], None, [[4, 2]]) == [{"4": 0.9, "2": 0.1}]
    assert map_class_to_label([[0.9]], {"4": "cat"}, [[4]]) == [{"cat": 0.9}]


def test_a_class_without_a_label_is_an_error() -> None:
    with pytest.raises(KeyError, match="1"):
        map_class_to_label([[0.1, 0.9]], {"0": "a"})


def test_probabilities_have_to_be_lists() -> None:
    with pytest.raises(TypeError, match="not tuple: call tolist"):
        map_class_to_label(((0.1, 0.9),))  # type: ignore[arg-type]


def test_a_prediction_exception_has_its_message_and_status() -> None:
    error = PredictionException("no such thing", 404)

    assert (error.message, error.error_code, str(error)) == ("no such thing", 404, "no such thing : 404")
    assert PredictionException("x").error_code == 500


def test_only_classes_of_the_module_itself_are_listed() -> None:
    module = ModuleType("m")
    exec("class A: ...\nclass B(A): ...\nclass C: ...\nD = A\ndef f(): ...", vars(module))
    vars(module)["Other"] = Path
    a, b, c = (vars(module)[name] for name in "ABC")

    assert list_classes_from_module(module) == [a, b, c]
    assert list_classes_from_module(module, a) == [a, b]


def test_names_of_compilers_are_known(caplog: pytest.LogCaptureFixture) -> None:
    assert check_valid_pt2_backend("inductor")
    assert check_valid_pt2_backend("hpu_backend")
    assert not caplog.records
    assert not check_valid_pt2_backend("bogus")
    assert "bogus is not a supported backend" in caplog.text


def test_yaml_is_read_without_its_dangerous_parts(tmp_path: Path) -> None:
    path = tmp_path / "model-config.yaml"
    path.write_text("batchSize: 4\nhandler: {a: [1, 2]}\n")
    assert get_yaml_config(str(path)) == {"batchSize": 4, "handler": {"a": [1, 2]}}

    path.write_text("a: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(Exception, match="could not determine a constructor"):
        get_yaml_config(str(path))


def test_a_deprecated_function_works_and_warns() -> None:
    @deprecated(version="1.0", replacement="new()")
    def old(value: int) -> int:
        return value + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert old(1) == 2

    (warning,) = caught
    assert str(warning.message) == "old is deprecated in 1.0 and moved to new()"
    assert warning.category is PendingDeprecationWarning
    assert warning.filename == __file__
    assert old.__name__ == "old"


def test_html_is_found_by_the_cleanup_pattern() -> None:
    assert CLEANUP_REGEX.sub("", "<b>a</b>&amp;b&#39;c&#x27;d < e") == "abcd < e"


@pytest.fixture(autouse=True)
def all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
