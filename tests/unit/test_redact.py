import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.logs import UpstreamLines, access_line
from shoal.redact import redact
from shoal.telemetry import JsonLines, PlainLines

SECRET = "wJalrXUtnFEMI7bPxR"
URL = f"https://bucket.s3.amazonaws.com/a.mar?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}&versionId=3"


@pytest.mark.parametrize(
    "text",
    [
        URL,
        f"/models?url={quote(URL, safe='')}&model_name=m",
        f"/models?url={quote(quote(URL, safe=''), safe='')}",
        f"cannot load {URL}: Given URL {URL} does not match",
        f"https://user:{SECRET}@host/a.mar",
        f"/models?url={quote(f'https://user:{SECRET}@host/a.mar', safe='')}",
        f"Authorization: Bearer {SECRET}",
        f"{{'authorization': 'bearer {SECRET}'}}",
        f'{{"api_key": "{SECRET}"}}',
        f"/predictions/m?token={SECRET}",
        f"/predictions/m?access_token={SECRET}&x=1",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"password={SECRET}",
        f'token="{SECRET}"',
        f"--http-restricted-api secret={SECRET}",
    ],
)
def test_no_secret_is_left(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "model m: 3 workers [rows=4 reason=full]",
        "/predictions/m?x=1&y=2",
        "next_page_token is a whole number",
        "POST /v2/models/m/infer HTTP/1.1",
        "http://127.0.0.1:8080/predictions/m",
        "tokens: 17",
        "the key of a signature is no secret",
        "user@host",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_a_secret_stays() -> None:
    assert redact(URL).endswith("X-Amz-Credential=***&X-Amz-Signature=***&versionId=3")
    assert redact(f"https://u:{SECRET}@host/a.mar") == "https://***@host/a.mar"


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(redact(text), str)


@pytest.mark.parametrize("piece", ["token", "token=", "%3D", "a:", "://a", "bearer ", "=%26", "sig" * 3])
def test_no_text_takes_long(piece: str) -> None:
    redact(piece * (100_000 // len(piece)))  # quadratic would be minutes, and the end of this test


@pytest.mark.parametrize(
    "form",
    [JsonLines(), PlainLines(), UpstreamLines("torchserve"), UpstreamLines("mms", brief=True)],
    ids=["json", "plain", "torchserve", "mms"],
)
def test_no_form_of_a_log_shows_a_secret(form: logging.Formatter) -> None:
    record = logging.LogRecord("shoal", logging.ERROR, __file__, 1, "cannot load %s", (URL,), None)
    record.fields = {"url": URL, "traceback": f"Traceback\n  {URL}"}
    assert SECRET not in form.format(record)
    if isinstance(form, JsonLines):
        quoted = logging.LogRecord("shoal", logging.ERROR, __file__, 1, 'a token="%s"', (SECRET,), None)
        assert json.loads(form.format(quoted))["message"] == 'a token="***"'

    record = logging.LogRecord("shoal", logging.INFO, __file__, 1, "x", (), None)
    record.lines = [access_line("1.2.3.4", "POST", f"/models?url={quote(URL, safe='')}", "HTTP/1.1", 200, 1.0)]
    if isinstance(form, UpstreamLines):
        assert SECRET not in form.format(record)
        assert "/models?url=https" in form.format(record)
