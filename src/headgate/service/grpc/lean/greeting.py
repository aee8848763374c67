"""What a server says first."""

from __future__ import annotations

from typing import Final

import zttp

_FRAME_HEADER: Final = 9
_SETTING: Final = 6


def with_calls(settings: bytes, calls: int) -> bytes:
    """Our SETTINGS frame, with *calls* for MAX_CONCURRENT_STREAMS unless zttp allows fewer."""
    told = bytearray(settings)
    for at in range(_FRAME_HEADER, len(told), _SETTING):
        if int.from_bytes(told[at : at + 2], "big") == zttp.H2Settings.MAX_CONCURRENT_STREAMS:
            value = min(calls, int.from_bytes(told[at + 2 : at + _SETTING], "big"))
            told[at + 2 : at + _SETTING] = value.to_bytes(4, "big")
    return bytes(told)
