"""The headers that a connection looks at itself, by number: comparing those is cheaper than comparing names."""

from typing import Final

HOST: Final = 0
LENGTH: Final = 1
TYPE: Final = 2
ID: Final = 3
CONNECTION: Final = 4
TRANSFER: Final = 5
EXPECT: Final = 6
TIMEOUT: Final = 7

NOTED: Final = {
    b"host": HOST,
    b"content-length": LENGTH,
    b"content-type": TYPE,
    b"x-request-id": ID,
    b"connection": CONNECTION,
    b"proxy-connection": CONNECTION,
    b"transfer-encoding": TRANSFER,
    b"expect": EXPECT,
    b"x-request-timeout-ms": TIMEOUT,
}

# what a head says about its connection
UNSAID: Final = 0
KEPT: Final = 1  # that it is, which is usual
OTHERWISE: Final = 2
