"""What the connections of one server share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.service.grpc.limits import GrpcLimits
    from headgate.service.grpc.method import Methods, Stream, Streams, Unary

    from .connection import Connection


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
