"""What a connection is doing. The order matters: up to HEAD no head is complete, up to SINK a request is coming in."""

from typing import Final

IDLE: Final = 0  # waits for the next request
HEAD: Final = 1  # a head is coming in
CHUNKED: Final = 2  # a body whose length nobody knows yet is coming in
BODY: Final = 3  # a small one
SINK: Final = 4  # a large one, into a place of its own
READY: Final = 5  # a request is whole
BUSY: Final = 6  # and with the application
LINGER: Final = 7  # the last answer is out; what still comes is thrown away
CLOSED: Final = 8  # nothing more happens
