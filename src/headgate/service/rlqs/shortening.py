"""Messages of Protocol Buffers that were cut off somewhere: what there is of them."""

from __future__ import annotations

from typing import Final

_LENGTH_DELIMITED: Final = 2
_SIZES: Final = {1: 8, 5: 4}
_LONGEST_NUMBER: Final = 10


def whole_fields(message: bytes, most: int) -> bytes:
    """The first fields of *message*, at most *most* and those only that are whole."""
    end = 0
    for _ in range(most):
        after = _field_end(message, end)
        if after is None or after > len(message):
            break
        end = after
    return message[:end]


def _field_end(message: bytes, start: int) -> int | None:
    """Where the field ends that begins at *start*; None if that cannot be told."""
    tag, at = _number(message, start)
    if tag is None:
        return None
    kind = tag & 7
    if kind == 0:
        value, at = _number(message, at)
        return None if value is None else at
    if kind == _LENGTH_DELIMITED:
        length, at = _number(message, at)
        return None if length is None else at + length
    return at + _SIZES[kind] if kind in _SIZES else None


def _number(message: bytes, start: int) -> tuple[int | None, int]:
    """The varint at *start*, and where it ends; None if it is not whole."""
    value = 0
    for place, byte in enumerate(message[start : start + _LONGEST_NUMBER]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    return None, start
