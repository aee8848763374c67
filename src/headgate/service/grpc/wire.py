"""gRPC over HTTP/2, as bytes: messages with their prefix, statuses, deadlines.

A message is preceded by five bytes: a flag (1: compressed, which we never offer and refuse) and
its length. The status comes last, in trailers; its text is percent-encoded.
"""

from __future__ import annotations

from typing import Final

from headgate.service.grpc.method import CallError, Code

PREFIX: Final = 5
NAMED: Final = 1024
"""Characters of a status's text that are sent: trailers are headers, and have a limit."""
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
_MOST_DIGITS: Final = 8
Fields = list[tuple[bytes, bytes]]


def framed(message: bytes) -> bytes:
    """The *message* with its prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def only_message(data: bytes, most: int) -> bytes | None:
    """The message that *data* is, as nearly all come: one frame, one message of *most* bytes."""
    size = len(data) - PREFIX
    if 0 <= size <= most and data[0] == 0 and int.from_bytes(data[1:PREFIX], "big") == size:
        return data[PREFIX:]
    return None


def status(code: Code, message: str) -> Fields:
    """Trailers for a call that ends with *code*."""
    fields = [(b"grpc-status", b"%d" % code)]
    if message:
        fields.append((b"grpc-message", percent_encoded(message[:NAMED])))
    return fields


def percent_encoded(text: str) -> bytes:
    """The *text* as a header may carry it: printable ASCII but `%`, the rest as %XX of UTF-8."""
    encoded = text.encode("utf-8", "replace")
    return b"".join(b"%c" % byte if byte in _KEPT else b"%%%02X" % byte for byte in encoded)


def timeout_s(value: bytes) -> float:
    """Seconds that `grpc-timeout` grants; `CallError` if it is none."""
    digits, unit = value[:-1], value[-1] if value else 0
    if not digits.isdigit() or len(digits) > _MOST_DIGITS or unit not in _UNITS_S:
        raise CallError(
            Code.INVALID_ARGUMENT, "grpc-timeout must be 1 to 8 digits and a unit of HMSmun"
        )
    return int(digits) * _UNITS_S[unit]


class Messages:
    """Cuts what comes of one call into messages. `held` bytes are of one that is not whole yet.

    One of more bytes than *limit* is refused; or, if it *shortens* such, there is one byte more
    than that of it, and the rest is passed over.
    """

    __slots__ = ("_held", "_limit", "_passed_over", "_shortens")

    def __init__(self, limit: int, *, shortens: bool = False) -> None:
        self._limit = limit
        self._shortens = shortens
        self._held = bytearray()
        self._passed_over = 0  # that is yet to be

    @property
    def held(self) -> int:
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that *data* makes whole. `CallError` if one is too long or compressed."""
        held = self._held
        held += data
        found: list[bytes] = []
        at = self._pass_over(0)
        while len(held) - at >= PREFIX:
            length = self._length(held, at)
            taken = min(length, self._limit + 1)
            end = at + PREFIX + taken
            if len(held) < end:
                break
            found.append(bytes(held[at + PREFIX : end]))
            self._passed_over = length - taken
            at = self._pass_over(end)
        del held[:at]
        return found

    def _pass_over(self, at: int) -> int:
        """Where what is wanted begins, if what is passed over may begin at *at*."""
        passed_over = min(self._passed_over, len(self._held) - at)
        self._passed_over -= passed_over
        return at + passed_over

    def _length(self, held: bytearray, at: int) -> int:
        if held[at]:
            raise CallError(
                Code.UNIMPLEMENTED, "compressed messages are not supported: send them as identity"
            )
        length = int.from_bytes(held[at + 1 : at + PREFIX], "big")
        if length > self._limit and not self._shortens:
            raise CallError(
                Code.RESOURCE_EXHAUSTED,
                f"a message of {length} bytes is longer than {self._limit} bytes",
            )
        return length
