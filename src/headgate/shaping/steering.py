"""What moves the number of slots of a gate."""

from __future__ import annotations

from typing import Protocol


class Steering(Protocol):
    """How many may be in at the same time, moved by how those fare that were.

    It reads no clock and takes no lock: whoever asks it says what has happened, one at a time.
    """

    @property
    def limit(self) -> int:
        """How many may be in now; at least 1."""

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        """A request that was one of *in_flight*, itself included, when it began has ended.

        Where slots are kept from its class, *in_flight* is told in proportion: all of them are in
        use for it when all are that it may use.
        *latency_ns* is 0 if how long it took says nothing: of a websocket, how long it was open. It
        did not succeed if it failed for want of capacity: a timeout, a 503, a refusal further
        on. Errors that are the request's own fault did succeed in this sense.
        """
