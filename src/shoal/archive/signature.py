"""AWS Signature Version 4 for one GET from S3: what `s3_sse_kms` asks for."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY = hashlib.sha256(b"").hexdigest()


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and in which region."""

    key_id: str
    secret: str
    region: str
    token: str = ""


def credentials_from(environment: Mapping[str, str]) -> Credentials | None:
    """Take them from the variables that upstream reads; None when one of those is missing."""
    key_id, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
    region = environment.get("AWS_DEFAULT_REGION", "") or environment.get("AWS_REGION", "")
    if not (key_id and secret and region):
        return None
    return Credentials(key_id=key_id, secret=secret, region=region, token=environment.get("AWS_SESSION_TOKEN", ""))


def sign_get(
    url: str, credentials: Credentials, now: datetime, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Give the headers that make a GET of this URL a signed one; `headers` are signed with it."""
    parts = urlsplit(url)
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{credentials.region}/s3/aws4_request"
    added = {"x-amz-content-sha256": EMPTY, "x-amz-date": moment}
    if credentials.token:
        added["x-amz-security-token"] = credentials.token
    signed = {name.lower(): value.strip() for name, value in {"host": parts.netloc, **(headers or {}), **added}.items()}
    names = ";".join(sorted(signed))
    request = "\n".join(
        [
            "GET",
            quote(unquote(parts.path) or "/", safe="/-_.~"),
            _query(parts.query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            EMPTY,
        ]
    )
    text = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret}".encode()
    for word in (moment[:8], credentials.region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    authorization = f"{ALGORITHM} Credential={credentials.key_id}/{scope},SignedHeaders={names},Signature={signature}"
    return added | {"Authorization": authorization}


def _query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    return "&".join(sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs))
