import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.routes import Wanted, added_headers, segments_of, wanted

ALL = {"has_versions": True, "has_explanations": True}
MMS = {"has_versions": False, "has_explanations": False}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/predictions/m", Wanted("m", "", False, "")),
        ("/predictions/m/", Wanted("m", "", False, "")),
        ("/predictions/m/2.0", Wanted("m", "2.0", False, "")),
        ("/predictions/m/2.0/a/b", Wanted("m", "2.0", False, "a/b")),
        ("/explanations/m", Wanted("m", "", True, "")),
        ("/explanations/m/2.0/x", Wanted("m", "2.0", True, "x")),
        ("/v1/models/m:predict", Wanted("m", explains=False)),
        ("/v1/models/m:explain", Wanted("m", explains=True)),
        ("/v2/models/m/infer", Wanted("m", explains=False)),
        ("/v2/models/m/explain", Wanted("m", explains=True)),
        ("/v2/models/m:x/infer", Wanted("m", explains=False)),
        ("/invocations", Wanted("", explains=None, takes_query=True)),
        ("/models/m/invoke", Wanted("m", explains=None, takes_query=True)),
        ("/m/predict", Wanted("m", explains=None, takes_query=True)),
        ("/m/2.0/predict", Wanted("m", "2.0", explains=None, takes_query=True)),
        ("/predictions/my%20model", Wanted("my model", "", False, "")),
        *(
            (path, None)
            for path in (
                "/",
                "/predictions",
                "/explanations/",
                "/v1/models/m",
                "/v1/models/m:train",
                "/v1/models/:predict",
                "/v2/models/m",
                "/v2/models/m/ready",
                "/v2",
                "/models",
                "/models/m",
                "/models/predict",
                "/models/m/predict",
                "/models/m/other",
                "/models/m/all",
                "/ping",
                "/nowhere",
                "/invocations/m",
            )
        ),
    ],
)
def test_a_path_says_which_model_is_wanted_and_how(path: str, asked: Wanted | None) -> None:
    assert wanted(segments_of(path.encode()), **ALL) == asked


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/predictions/m/2.0/a", Wanted("m", explains=None)),
        ("/predictions/m", Wanted("m", explains=None)),
        ("/explanations/m", None),
        ("/v1/models/m:predict", None),
        ("/v2/models/m/infer", None),
        ("/m/2.0/predict", None),
        ("/m/predict", Wanted("m", explains=None, takes_query=True)),
        ("/invocations", Wanted("", explains=None, takes_query=True)),
    ],
)
def test_a_server_without_versions_does_not_look_for_them(path: str, asked: Wanted | None) -> None:
    assert wanted(segments_of(path.encode()), **MMS) == asked


@given(st.lists(st.sampled_from(["predictions", "models", "m", "1.0", "invoke", "predict", "v1", "v2"]), max_size=6))
def test_slashes_at_the_end_mean_nothing(segments: list[str]) -> None:
    path = "/" + "/".join(segments)

    assert segments_of(path.encode()) == segments_of(f"{path}//".encode()) == segments


@pytest.mark.parametrize(
    ("asked", "is_torchserve", "headers"),
    [
        (Wanted("m", "", False, ""), False, []),
        (Wanted("m", "", False, ""), True, [(b"explain", b"False"), (b"url_path", b"")]),
        (Wanted("m", "", False, "a/b"), False, [(b"url_path", b"a/b")]),
        (Wanted("m", "", True, ""), False, [(b"explain", b"True")]),
        (Wanted("m", "", True, ""), True, [(b"explain", b"True"), (b"url_path", b"")]),
        (Wanted("m", explains=False), True, [(b"explain", b"False")]),
        (Wanted("m", explains=None), True, []),
    ],
)
def test_a_handler_is_told_what_its_route_says(
    asked: Wanted, is_torchserve: bool, headers: list[tuple[bytes, bytes]]
) -> None:
    assert list(added_headers(asked, is_torchserve)) == headers
