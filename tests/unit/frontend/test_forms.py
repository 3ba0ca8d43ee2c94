import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput
from shoal.frontend.forms import MOST_PARTS, form_parts, is_form
from shoal.payload import Part

URLENCODED = b"application/x-www-form-urlencoded"
MULTIPART = b"multipart/form-data; boundary=XX"


def part(name: str, content: bytes, *lines: str, filename: str = "") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    return b"--XX\r\n" + "\r\n".join([head, *lines]).encode() + b"\r\n\r\n" + content + b"\r\n"


def multipart(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--XX--\r\n"


def seen(parts: list[Part]) -> list[tuple[str, str, object]]:
    return [(part.name, part.content_type, part.data) for part in parts]


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (URLENCODED, True),
        (URLENCODED + b"; charset=utf-8", True),
        (b"Application/X-WWW-Form-UrlEncoded", True),
        (MULTIPART, True),
        (b"Multipart/Form-Data; boundary=x", True),
        (b"application/json", False),
        (b"application/x-www-form", False),
        (b"text/multipart/", False),
        (b"", False),
    ],
)
def test_a_form_is_told_from_one_value_by_its_content_type(content_type: bytes, expected: bool) -> None:
    assert is_form(content_type) is expected


def test_url_encoded_fields_become_parts() -> None:
    parts = form_parts(URLENCODED, b"text=hello+w%C3%B6rld&empty=&n=1")

    assert seen(parts) == [("text", "", "hello wörld".encode()), ("empty", "", b""), ("n", "", b"1")]


def test_an_empty_url_encoded_form_has_no_parts() -> None:
    assert form_parts(URLENCODED, b"") == []


def test_bytes_that_are_no_text_survive_url_encoding() -> None:
    assert seen(form_parts(URLENCODED, b"raw=%ff%00%fe")) == [("raw", "", b"\xff\x00\xfe")]


def test_a_name_is_always_text_that_can_travel() -> None:
    (named,) = form_parts(URLENCODED, b"%ff=1")

    assert named.name.encode("utf-8")


@given(value=st.binary())
def test_any_value_survives_url_encoding(value: bytes) -> None:
    body = b"v=" + b"".join(b"%%%02x" % byte for byte in value)

    assert seen(form_parts(URLENCODED, body)) == [("v", "", value)]


@pytest.mark.parametrize("body", [b"no equals sign", b"a=1&&b=2", b"a=\xff", b"&"])
def test_a_broken_url_encoded_form_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a url-encoded form"):
        form_parts(URLENCODED, body)


def test_too_many_fields_are_refused() -> None:
    fields = [b"f%d=1" % number for number in range(MOST_PARTS + 1)]

    assert len(form_parts(URLENCODED, b"&".join(fields[:-1]))) == MOST_PARTS
    with pytest.raises(InvalidInput):
        form_parts(URLENCODED, b"&".join(fields))


def test_a_multipart_field_is_a_part_without_a_type_and_a_file_has_its_own() -> None:
    body = multipart(
        part("text", "grüße".encode()),
        part("image", b"\xff\xd8\r\n--X", "Content-Type: image/jpeg", filename="cat.jpg"),
        part("data", b"", filename="data.bin"),
    )

    assert seen(form_parts(MULTIPART, body)) == [
        ("text", "", "grüße".encode()),
        ("image", "image/jpeg", b"\xff\xd8\r\n--X"),
        ("data", "application/octet-stream", b""),
    ]


def test_the_word_multipart_may_be_written_in_any_case() -> None:
    assert len(form_parts(b"Multipart/Form-Data; Boundary=XX", multipart(part("a", b"1")))) == 1


@given(content=st.binary())
def test_any_content_survives_a_multipart_form(content: bytes) -> None:
    if b"--XX" not in content:
        assert seen(form_parts(MULTIPART, multipart(part("v", content)))) == [("v", "", content)]


def test_of_parts_with_one_name_the_last_wins() -> None:
    assert seen(form_parts(URLENCODED, b"a=1&b=2&a=3")) == [("a", "", b"3"), ("b", "", b"2")]
    assert seen(form_parts(MULTIPART, multipart(part("a", b"1"), part("a", b"2")))) == [("a", "", b"2")]


@pytest.mark.parametrize("kept", [0, 1, 10, 60, -1, -5, -8])
def test_half_a_multipart_form_is_refused(kept: int) -> None:
    whole = multipart(part("a", b"content of the part"))[:-2]

    with pytest.raises(InvalidInput):
        form_parts(MULTIPART, whole[:kept])


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"--XX--\r\n",
        b"--YY\r\n\r\n\r\n--YY--\r\n",
        multipart(b"--XX\r\nno header\r\n\r\nx\r\n"),
        multipart(b'--XX\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n'),
        multipart(part("a", b"1", *(f"X-{number}: 1" for number in range(20)))),
        multipart(part("a", b"1", "X: " + "x" * 10_000)),
        multipart(*(part(f"p{number}", b"1") for number in range(MOST_PARTS + 1))),
    ],
)
def test_a_broken_multipart_form_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="multipart body"):
        form_parts(MULTIPART, body)


@pytest.mark.parametrize(
    "content_type", [b"multipart/form-data", b"multipart/form-data; boundary=", b'multipart/x; boundary=""']
)
def test_a_multipart_form_needs_a_boundary(content_type: bytes) -> None:
    with pytest.raises(InvalidInput, match="has no boundary in its Content-Type"):
        form_parts(content_type, b"--XX--")


@given(body=st.binary(), content_type=st.binary(max_size=30))
def test_no_form_makes_it_raise_anything_else(body: bytes, content_type: bytes) -> None:
    for kind in (URLENCODED, MULTIPART, b"multipart/" + content_type, MULTIPART + content_type):
        try:
            parts = form_parts(kind, b"--XX\r\n" + body)
        except InvalidInput:
            continue
        assert all(isinstance(part.data, bytes) for part in parts)
