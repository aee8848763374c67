"""Commands out of what a client has sent to Redis."""

from __future__ import annotations


def commands(sent: bytes) -> list[tuple[bytes, ...]]:
    """The commands in *sent*, each an array of bulk strings; one cut off at the end is left out."""
    found: list[tuple[bytes, ...]] = []
    rest = sent
    while rest:
        count, rest = _header(rest, b"*")
        parts: list[bytes] = []
        while rest and len(parts) < count:
            size, rest = _header(rest, b"$")
            if len(rest) >= size + 2:
                parts.append(rest[:size])
            rest = rest[size + 2 :]
        if count and len(parts) == count:
            found.append(tuple(parts))
    return found


def _header(data: bytes, mark: bytes) -> tuple[int, bytes]:
    line, end, rest = data.partition(b"\r\n")
    if not end:
        return 0, b""
    if not line.startswith(mark):
        raise ValueError(f"expected {mark!r} and a number where a client sent {line[:40]!r}")
    return int(line[1:]), rest
