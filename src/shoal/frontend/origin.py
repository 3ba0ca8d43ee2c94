"""Origins: whether a browser acts for a page of this server, for one that is allowed to, or for one from elsewhere."""

from ipaddress import ip_address

from shoal.frontend.exchange import Exchange

FOREIGN = "a page of another origin may not manage this server"
RENAMED = (
    "this address answers on its own machine only: call it 127.0.0.1 or localhost in the browser, "
    "or set cors_origin to the origin that may use it"
)


def is_own_page(exchange: Exchange, allowed: str, *, is_local: bool) -> bool:
    """Whether this is no browser acting for a page from elsewhere, or for one that is allowed to.

    Where the listener is bound to this machine (`is_local`), a page that reached it by a name of its own is from
    elsewhere: any web site can make its name mean 127.0.0.1.
    """
    origin = exchange.header(b"origin")
    if origin is None or allowed in ("*", origin.decode("latin-1")):
        return True
    host = exchange.header(b"host") or b""
    return origin.partition(b"://")[2] == host and (not is_local or names_a_machine(host))


def names_a_machine(host: bytes) -> bool:
    """Whether a Host header is a number or `localhost`: nothing that somebody else's name server could answer for."""
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
