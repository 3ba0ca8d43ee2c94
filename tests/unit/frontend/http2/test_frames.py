"""The bytes of frames."""

import pytest

from shoal.frontend.http2 import frames
from shoal.frontend.http2.frames import ErrorCode
from shoal.frontend.http2.limits import Http2Limits


def test_the_frames_a_server_sends() -> None:
    assert frames.settings({3: 100, 4: 65535}) == bytes.fromhex("00000c04000000000000030000006400040000ffff")
    assert bytes.fromhex("000000040100000000") == frames.SETTINGS_ACK
    assert frames.ping(b"12345678", True) == bytes.fromhex("000008060100000000") + b"12345678"
    assert (
        frames.goaway(5, ErrorCode.PROTOCOL_ERROR, "why")
        == bytes.fromhex("00000b0700000000000000000500000001") + b"why"
    )
    assert frames.rst_stream(3, ErrorCode.CANCEL) == bytes.fromhex("00000403000000000300000008")
    assert frames.window_update(0, 1000) == bytes.fromhex("000004080000000000000003e8")
    assert frames.headers(1, b"abc", True, 16384) == bytes.fromhex("000003010500000001") + b"abc"


def test_a_block_that_does_not_fit_is_continued() -> None:
    assert frames.headers(1, b"abcdefg", True, 3) == (
        bytes.fromhex("000003010100000001")
        + b"abc"  # END_STREAM belongs to HEADERS,
        + bytes.fromhex("000003090000000001")
        + b"def"
        + bytes.fromhex("000001090400000001")
        + b"g"  # and END_HEADERS to the last
    )
    assert frames.headers(1, b"abcdef", False, 3).endswith(bytes.fromhex("000003090400000001") + b"def")


@pytest.mark.parametrize(
    "limits", [{"frame_size": 100}, {"frame_size": 2**24}, {"stream_window": 1000}, {"connection_window": 2**31}]
)
def test_limits_that_http_2_does_not_allow_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is"):
        Http2Limits(**limits)
