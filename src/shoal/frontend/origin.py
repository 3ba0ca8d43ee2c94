"""Origins: whether a browser acts for a page of this server, for one that is allowed to, or for one from elsewhere."""

from ipaddress import ip_address

from shoal.frontend.exchange import Exchange

FOREIGN = "a page of another origin may not manage this server"
RENAMED = (
    "this address answers on its own machine only: call it 127.0.0.1 or localhost, "
    "or set cors_origin to the origin that may use it"
)
PRIVATE = (".localhost", ".local", ".internal")  # nobody can register a name in these


def objection(exchange: Exchange, allowed: str, *, is_local: bool) -> str:
    """Say why this request is not to be acted on; nothing where no page asks, a page of ours, or an allowed one.

    Where the listener is bound to this machine (`is_local`), whoever reached it by a name of the public internet is a
    page from elsewhere: any web site can make its name mean 127.0.0.1, and a browser reads without naming an origin.
    """
    host = exchange.header(b"host")
    origin = exchange.header(b"origin")
    if allowed == "*" or (allowed and allowed in (_text(origin), f"http://{_text(host)}", f"https://{_text(host)}")):
        return ""
    if is_local and host is not None and not names_a_machine(host):
        return RENAMED
    return FOREIGN if origin is not None and origin.partition(b"://")[2] != host else ""


def names_a_machine(host: bytes) -> bool:
    """Whether a Host header is a number or a private name: nothing that a stranger's name server could answer for."""
    text = _text(host).lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    if name and "." not in name and ":" not in name:
        return True
    if name.endswith(PRIVATE):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _text(header: bytes | None) -> str:
    return (header or b"").decode("latin-1")
