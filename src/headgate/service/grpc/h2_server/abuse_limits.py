"""Limits on one peer's time and control frames. No I/O, no clock."""

from __future__ import annotations

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
MAX_IDLE_BYTES: Final = 1 << 18
"""Consecutive bytes without a frame of a call: empty and unknown frames."""
_OVERHEAD_PER_CALL: Final = 4
_BYTES_PER_OVERHEAD: Final = 1024
_MAX_CREDIT_S: Final = 10
"""Time for which unused allowance is kept: a peer may acknowledge bytes long after we sent them."""


class PeerBudget:
    """The behaviour of one peer, compared with the limits. Times are seconds of one clock.

    `opened` and `resets` count calls that were started and cancelled. `overhead` counts frames
    outside of calls; a normal peer sends few in relation to the bytes `moved` in both directions.
    `idle_bytes` counts the bytes since the last frame of a call.
    """

    __slots__ = (
        "_busy_at",
        "_credit",
        "_limits",
        "_seen",
        "_since",
        "_unread_since",
        "idle_bytes",
        "is_begun",
        "leaving_since",
        "moved",
        "opened",
        "overhead",
        "resets",
    )

    def __init__(self, limits: GrpcLimits, *, now: float) -> None:
        self._limits = limits
        self._since = self._busy_at = now
        self._unread_since: float | None = None
        self._seen = 0
        self._credit = limits.control_frames
        self.is_begun = False
        self.leaving_since: float | None = None
        self.opened = self.resets = self.overhead = self.idle_bytes = self.moved = 0

    @property
    def is_exceeded(self) -> bool:
        """True if the peer sends too much outside of calls."""
        return self.overhead > self._allowed or self.idle_bytes > MAX_IDLE_BYTES

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
        is_asked, self._seen = self.opened != self._seen, self.opened
        if not self.is_begun and now - self._since > self._limits.preface_s:
            return "no_preface"
        if self._is_stalled(now, unread=unread):
            return "stalled"
        if calls or unread or is_asked:
            self._busy_at = now
            return None
        leaving = self.leaving_since
        if leaving is not None and now - max(leaving, self._busy_at) > LINGER_S:
            return "idle"
        return "idle" if now - self._busy_at > self._limits.idle_s else None

    def _settle(self) -> None:
        """Carry unused allowance over to the next second, up to a maximum."""
        left = max(0, self._allowed - self.overhead) + self._limits.control_frames
        self._credit = min(left, _MAX_CREDIT_S * self._limits.control_frames)
        self.overhead = self.moved = 0

    def _is_stalled(self, now: float, *, unread: bool) -> bool:
        if not unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        return self._unread_since is not None and now - self._unread_since > self._limits.stall_s
