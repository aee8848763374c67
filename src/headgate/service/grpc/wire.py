"""The gRPC encoding on HTTP/2: message prefixes, status trailers, deadlines.

A message has a prefix of five bytes: a flag (1: compressed, which we never offer and reject) and
the length. The status comes last, in trailers; its text is percent-encoded.
"""

from __future__ import annotations

from typing import Final

from headgate.service.grpc.method import CallError, Code

PREFIX: Final = 5
MAX_STATUS_CHARS: Final = 1024
"""Characters of a status text that are sent: trailers are headers, whose size is limited."""
FAILED: Final = "the method failed; see the log of the server"
HEAD: Final = [(b"content-type", b"application/grpc")]
OK: Final = [(b"grpc-status", b"0")]
_KEPT: Final = frozenset(range(0x20, 0x7F)) - {ord("%")}
_UNITS_S: Final = {
    ord("H"): 3600.0,
    ord("M"): 60.0,
    ord("S"): 1.0,
    ord("m"): 1e-3,
    ord("u"): 1e-6,
    ord("n"): 1e-9,
}
_MAX_DIGITS: Final = 8
Fields = list[tuple[bytes, bytes]]


def framed(message: bytes) -> bytes:
    """Prepend the prefix to *message*."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def only_message(data: bytes, most: int) -> bytes | None:
    """The message if *data* is exactly one frame with one message of at most *most* bytes, or
    None."""
    size = len(data) - PREFIX
    if 0 <= size <= most and data[0] == 0 and int.from_bytes(data[1:PREFIX], "big") == size:
        return data[PREFIX:]
    return None


def status(code: Code, message: str) -> Fields:
    """The trailers of a call that ends with *code*."""
    fields = [(b"grpc-status", b"%d" % code)]
    if message:
        fields.append((b"grpc-message", percent_encoded(message[:MAX_STATUS_CHARS])))
    return fields


def percent_encoded(text: str) -> bytes:
    """Percent-encode *text* for a header: printable ASCII except `%` stays, the rest is %XX of
    UTF-8."""
    encoded = text.encode("utf-8", "replace")
    return b"".join(b"%c" % byte if byte in _KEPT else b"%%%02X" % byte for byte in encoded)


def timeout_s(value: bytes) -> float:
    """Parse `grpc-timeout` to seconds. Raises `CallError` if it is malformed."""
    digits, unit = value[:-1], value[-1] if value else 0
    if not digits.isdigit() or len(digits) > _MAX_DIGITS or unit not in _UNITS_S:
        raise CallError(
            Code.INVALID_ARGUMENT, "grpc-timeout must be 1 to 8 digits and a unit of HMSmun"
        )
    return int(digits) * _UNITS_S[unit]


class Messages:
    """Splits the data of one call into messages; `held` is the size of the incomplete one.

    A message longer than *limit* bytes raises `CallError`, or with *truncates* is cut to one byte
    above the limit.
    """

    __slots__ = ("_held", "_limit", "_to_skip", "_truncates")

    def __init__(self, limit: int, *, truncates: bool = False) -> None:
        self._limit = limit
        self._truncates = truncates
        self._held = bytearray()
        self._to_skip = 0
        """Bytes of a truncated message that are still to be skipped."""

    @property
    def held(self) -> int:
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """Add *data* and return complete messages. Raises `CallError` on a long or compressed
        one."""
        held = self._held
        held += data
        found: list[bytes] = []
        at = self._skip(0)
        while len(held) - at >= PREFIX:
            length = self._length(held, at)
            taken = min(length, self._limit + 1)
            end = at + PREFIX + taken
            if len(held) < end:
                break
            found.append(bytes(held[at + PREFIX : end]))
            self._to_skip = length - taken
            at = self._skip(end)
        del held[:at]
        return found

    def _skip(self, at: int) -> int:
        """Skip what is left of a truncated message from *at* and return the new position."""
        skipped = min(self._to_skip, len(self._held) - at)
        self._to_skip -= skipped
        return at + skipped

    def _length(self, held: bytearray, at: int) -> int:
        if held[at]:
            raise CallError(
                Code.UNIMPLEMENTED, "compressed messages are not supported: send them as identity"
            )
        length = int.from_bytes(held[at + 1 : at + PREFIX], "big")
        if length > self._limit and not self._truncates:
            raise CallError(
                Code.RESOURCE_EXHAUSTED,
                f"a message of {length} bytes is longer than {self._limit} bytes",
            )
        return length
