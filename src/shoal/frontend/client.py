"""Client: which connection a request came on."""

from typing import Final


class Client(int):
    """The number of a connection; `address` is the host it comes from, where it comes from one."""

    address: str


NOBODY: Final = Client(0)  # before a connection is made
