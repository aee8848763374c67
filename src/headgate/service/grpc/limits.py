"""How much of a server one peer may take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from headgate.errors import OptionError

MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """What a gRPC server grants: bytes are counted, times are seconds. All are above zero.

    A peer that goes beyond one loses the call or the connection, as each says; never another's.
    """

    message_bytes: int = 4 * MEBIBYTE
    """The longest message. A longer one is answered RESOURCE_EXHAUSTED, or in a call of many
    messages cut off there: see `Stream`."""
    connection_bytes: int = 16 * MEBIBYTE
    """What is kept of a connection: messages that have begun, or wait to be taken or sent."""
    calls: int = 100
    """Calls at the same time on a connection, as advertised. More wait until the methods of others
    have answered, or are refused if none is at work. The lean server goes no higher than 128,
    grpcio no lower than 1024."""
    connections: int = 1024
    """Connections at the same time; more are closed as soon as they come (lean server)."""
    control_frames: int = 1000
    """Frames a second that ask for no call, beyond four for each call: pings, settings, resets."""
    preface_s: float = 10.0
    """How long a connection may take to begin with HTTP/2."""
    request_s: float = 30.0
    """How long a call of one message may take to bring it."""
    stall_s: float = 30.0
    """How long a peer may leave unread what it is sent."""
    idle_s: float = 900.0
    """How long a connection may stand without a call."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not value > 0:
                raise OptionError(f"the limit {field.name} must be above 0, not {value!r}")
        if self.connection_bytes < self.message_bytes:
            raise OptionError(
                f"connection_bytes ({self.connection_bytes}) must hold one message"
                f" of message_bytes ({self.message_bytes})"
            )


DEFAULT: Final = GrpcLimits()
