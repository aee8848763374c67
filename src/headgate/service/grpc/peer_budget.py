"""Limits on one peer's time and control frames. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from headgate.service.grpc.method import GrpcLimits


Verdict = Literal[
    "no_preface",  # no HTTP/2 preface in time
    "stalled",  # does not read replies
    "idle",  # idle for too long, or asked to leave and done
]
LINGER_S: Final = 1.0
"""Time for a peer that is done to close the connection itself, in seconds."""
RECONNECT_AFTER_CALLS: Final = 3072
"""Calls after which a peer is asked to reconnect: a thousand below the limit of zttp."""
RECONNECT_AFTER_RESETS: Final = 128
"""Cancelled calls after which a peer is asked to reconnect: half of the limit of zttp."""
_OVERHEAD_PER_CALL: Final = 4
_BYTES_PER_OVERHEAD: Final = 1024
_MAX_CREDIT_S: Final = 10
"""Time for which unused allowance is kept: a peer may acknowledge bytes long after we sent them."""

_PREFACE: Final = 24
_FRAME_HEADER: Final = 9
_SIZE_KIND_FLAGS: Final = Struct(">HBBB").unpack_from
_DATA, _HEADERS, _PRIORITY = range(3)
_END_STREAM: Final = 1
_PADDED: Final = 8
_NO_STREAM: Final = b"\0\0\0\0"


@dataclass(slots=True)
class PeerBudget:
    """The behaviour of one peer, compared with *limits*. Times are seconds of one clock.

    `opened` and `resets` count calls that were started and cancelled. `overhead` counts frames
    outside of calls; a normal peer sends few in relation to the bytes `moved` in both directions.
    """

    limits: GrpcLimits
    since: float
    is_begun: bool = False
    """True after the peer's preface."""
    leaving_since: float | None = None
    """The time at which the peer was asked to reconnect."""
    opened: int = 0
    resets: int = 0
    overhead: int = 0
    moved: int = 0
    has_broken_protocol: bool = False
    """True after a PRIORITY frame without a stream, which zttp ignores (RFC 9113, 6.3)."""
    busy_at: float = 0.0
    """The last check at which it had called, or its beginning."""
    _unread_since: float | None = None
    _seen: int = 0
    _credit: int = 0
    _to_skip: int = _PREFACE
    _header: bytes = b""
    """The incomplete header of a frame."""

    def __post_init__(self) -> None:
        self.busy_at, self._credit = self.since, self.limits.control_frames

    def receive(self, data: bytes) -> None:
        """Count the frames in *data*, the next bytes of the peer."""
        self.moved += len(data)
        if self._header:
            data, self._header = self._header + data, b""
        start, size = self._to_skip, len(data)
        while start + _FRAME_HEADER <= size:
            high, low, kind, flags = _SIZE_KIND_FLAGS(data, start)
            length = high << 8 | low
            if kind == _DATA:
                is_empty = not length or flags & _PADDED
                self.overhead += bool(is_empty and not flags & _END_STREAM)
            elif kind != _HEADERS:
                self.overhead += 1
                if kind == _PRIORITY and data[start + 5 : start + _FRAME_HEADER] == _NO_STREAM:
                    self.has_broken_protocol = True
            start += _FRAME_HEADER + length
        self._to_skip = max(start - size, 0)
        self._header = data[start:]

    @property
    def is_exceeded(self) -> bool:
        """True if the peer sends too much outside of calls."""
        return self.overhead > self._allowed

    @property
    def _allowed(self) -> int:
        """The overhead that is allowed until the next `verdict`."""
        earned = _OVERHEAD_PER_CALL * (self.opened - self._seen) + self.moved // _BYTES_PER_OVERHEAD
        return self._credit + earned

    @property
    def should_reconnect(self) -> bool:
        """True if the peer should be asked to reconnect."""
        return self.leaving_since is None and (
            self.opened >= RECONNECT_AFTER_CALLS or self.resets >= RECONNECT_AFTER_RESETS
        )

    def verdict(self, now: float, *, calls: int, unread: bool) -> Verdict | None:
        """The reason to close the connection now, or None.

        Call it about once a second. *calls* is the number of open calls; *unread* is true if the
        peer leaves something unread or gives no flow-control window for it.
        """
        self._settle()
        has_called, self._seen = self.opened != self._seen, self.opened
        if not self.is_begun and now - self.since > self.limits.preface_s:
            return "no_preface"
        if self._is_stalled(now, unread=unread):
            return "stalled"
        if calls or unread or has_called:
            self.busy_at = now
            return None
        leaving = self.leaving_since
        if leaving is not None and now - max(leaving, self.busy_at) > LINGER_S:
            return "idle"
        return "idle" if now - self.busy_at > self.limits.idle_s else None

    def _settle(self) -> None:
        """Carry unused allowance over to the next second, up to a maximum."""
        left = max(0, self._allowed - self.overhead) + self.limits.control_frames
        self._credit = min(left, _MAX_CREDIT_S * self.limits.control_frames)
        self.overhead = self.moved = 0

    def _is_stalled(self, now: float, *, unread: bool) -> bool:
        if not unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        return self._unread_since is not None and now - self._unread_since > self.limits.stall_s
