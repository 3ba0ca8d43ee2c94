"""The examples are those of the S3 documentation, with its example keys."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from shoal.archive.signature import Credentials, credentials_from, sign_get

EXAMPLE = Credentials(
    key_id="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", region="us-east-1"
)
THEN = datetime(2013, 5, 24, tzinfo=UTC)
HOST = "https://examplebucket.s3.amazonaws.com"


@pytest.mark.parametrize(
    ("path", "headers", "signature"),
    [
        (
            "/test.txt",
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        ("/?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_requests_are_signed_as_documented(path: str, headers: dict[str, str], signature: str) -> None:
    signed = sign_get(HOST + path, EXAMPLE, THEN, headers)

    names = "host;range;x-amz-content-sha256;x-amz-date" if headers else "host;x-amz-content-sha256;x-amz-date"
    assert signed["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        f"SignedHeaders={names},Signature={signature}"
    )
    assert signed["x-amz-date"] == "20130524T000000Z"
    assert signed["x-amz-content-sha256"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_order_of_a_query_does_not_count() -> None:
    assert sign_get(HOST + "/x?b=2&a=1", EXAMPLE, THEN) == sign_get(HOST + "/x?a=1&b=2", EXAMPLE, THEN)


def test_the_time_is_universal() -> None:
    elsewhere = THEN.astimezone(timezone(timedelta(hours=9)))

    assert sign_get(HOST + "/x", EXAMPLE, elsewhere) == sign_get(HOST + "/x", EXAMPLE, THEN)


def test_a_session_token_is_sent_and_signed() -> None:
    session = Credentials(key_id="a", secret="b", region="c", token="d")
    signed = sign_get(HOST + "/x", session, THEN)

    assert signed["x-amz-security-token"] == "d"
    assert "x-amz-date;x-amz-security-token" in signed["Authorization"]


def test_credentials_come_from_the_environment_or_not_at_all() -> None:
    whole = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "c"}

    assert credentials_from(whole) == Credentials(key_id="a", secret="b", region="c")
    for name in whole:
        assert credentials_from({key: value for key, value in whole.items() if key != name}) is None
