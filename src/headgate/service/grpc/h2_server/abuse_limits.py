"""How long a peer may take, and how much it may ask for besides calls. No I/O, no clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from headgate.service.grpc.h2_server.connection import Connection
    from headgate.service.grpc.method import GrpcLimits, Methods, Stream, Streams, Unary


Verdict = Literal[
    "mute",  # it did not begin with HTTP/2 in time
    "stalled",  # it does not read what it is sent
    "over",  # nothing has been asked for long, or it was asked to leave and is done
]
LINGER_S: Final = 1.0
"""How long a peer that is done is left to close the connection itself."""
RENEWED_AFTER: Final = 3072
"""Calls after which a peer is asked for a new connection: a thousand below what zttp allows."""
RENEWED_AFTER_RESETS: Final = 128
"""The same for calls that it has cancelled: half of what zttp allows."""
QUIET_BYTES: Final = 1 << 18
"""Bytes in a row that may bring nothing of a call: empty and unknown frames."""
_NOISE_PER_CALL: Final = 4
_BYTES_PER_NOISE: Final = 1024
_MOST_SECONDS: Final = 10
"""How long what a peer has earned is kept: the bytes that it reads late were sent long ago."""


class Patience:
    """What is remembered of one peer's behaviour. Times are seconds of one clock.

    `opened`, `resets`: calls that it has begun, and cancelled. `noise` counts frames that are of no
    call; a well-meaning peer sends few for the bytes that are `moved`, either way. `quiet` counts
    the bytes since the last frame of a call.
    """

    __slots__ = (
        "_busy_at",
        "_credit",
        "_limits",
        "_seen",
        "_since",
        "_unread_since",
        "is_begun",
        "leaving_since",
        "moved",
        "noise",
        "opened",
        "quiet",
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
        self.opened = self.resets = self.noise = self.quiet = self.moved = 0

    @property
    def is_tried(self) -> bool:
        """Whether the peer sends too much that is of no call."""
        return self.noise > self._allowed or self.quiet > QUIET_BYTES

    @property
    def _allowed(self) -> int:
        """How much noise is forgiven until the next `verdict`."""
        earned = _NOISE_PER_CALL * (self.opened - self._seen) + self.moved // _BYTES_PER_NOISE
        return self._credit + earned

    @property
    def is_due(self) -> bool:
        """Whether the peer should be asked for a new connection."""
        return self.leaving_since is None and (
            self.opened >= RENEWED_AFTER or self.resets >= RENEWED_AFTER_RESETS
        )

    def verdict(self, now: float, *, calls: int, unread: bool) -> Verdict | None:
        """Why the connection should be closed now; None if it should not.

        To be asked about once a second: *calls* are under way, *unread*: there is something that
        the peer has not read, or made no room for.
        """
        self._settle()
        is_asked, self._seen = self.opened != self._seen, self.opened
        if not self.is_begun and now - self._since > self._limits.preface_s:
            return "mute"
        if self._is_stalled(now, unread=unread):
            return "stalled"
        if calls or unread or is_asked:
            self._busy_at = now
            return None
        leaving = self.leaving_since
        if leaving is not None and now - max(leaving, self._busy_at) > LINGER_S:
            return "over"
        return "over" if now - self._busy_at > self._limits.idle_s else None

    def _settle(self) -> None:
        """Carry what was not used up over to the next second, but not for ever."""
        left = max(0, self._allowed - self.noise) + self._limits.control_frames
        self._credit = min(left, _MOST_SECONDS * self._limits.control_frames)
        self.noise = self.moved = 0

    def _is_stalled(self, now: float, *, unread: bool) -> bool:
        if not unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        return self._unread_since is not None and now - self._unread_since > self._limits.stall_s


# What the connections of one server share.


class Service:
    """The methods by their paths as they come over the wire, and who is connected."""

    def __init__(
        self,
        methods: Methods,
        streams: Streams,
        *,
        limits: GrpcLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.methods: dict[bytes, Unary] = {path.encode(): one for path, one in methods.items()}
        self.streams: dict[bytes, Stream] = {path.encode(): one for path, one in streams.items()}
        self.limits = limits
        self.loop = loop
        self.connections: set[Connection] = set()
        self.arrivals: set[asyncio.Task[None]] = set()
        """Those that will be connections when their TLS is agreed on."""
        self.is_open = True
        self.gone = asyncio.Event()
        """Set whenever a connection has gone."""

    def admit(self, connection: Connection) -> bool:
        """Count *connection*, unless there are too many already or we are about to stop."""
        if not self.is_open or len(self.connections) >= self.limits.connections:
            return False
        self.connections.add(connection)
        return True

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be, with those that arrive."""
        return len(self.connections) + len(self.arrivals) >= self.limits.connections

    def dismiss(self, connection: Connection) -> None:
        """It is gone."""
        self.connections.discard(connection)
        self.gone.set()
