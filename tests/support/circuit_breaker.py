"""A breaker by itself, on the clock and with the random numbers of a test."""

from __future__ import annotations

from headgate.errors import StoreError
from headgate.stores.layers.circuit_breaker.breaker import Breaker, BreakerOptions, Change, State

OPTIONS = BreakerOptions()
TIMEOUT = StoreError("no reply within 50 ms", reason="timeout")


class Tried:
    """A breaker, the time, and its transitions."""

    def __init__(self, options: BreakerOptions = OPTIONS) -> None:
        self.changes: list[Change] = []
        self.breaker = Breaker(options, self.changes.append)
        self.now_ns = 10**12

    def request(self, chance: float = 0.5) -> int | None:
        return self.breaker.request(self.now_ns, chance)

    def succeed(self, ticket: int | None = None, chance: float = 0.5) -> None:
        given = self.request(0.0) if ticket is None else ticket
        assert given is not None
        self.breaker.succeeded(given, self.now_ns, chance)

    def fail(self, ticket: int | None = None, chance: float = 0.5) -> None:
        given = self.request(0.0) if ticket is None else ticket
        assert given is not None
        self.breaker.failed(given, TIMEOUT, self.now_ns, chance)

    def open(self) -> None:
        while self.breaker.is_closed:
            self.fail()

    def wait(self, ns: int | None = None) -> None:
        self.now_ns += self.breaker.wait_ns(self.now_ns) if ns is None else ns

    def ramp(self) -> None:
        self.open()
        self.wait()
        self.succeed()

    @property
    def states(self) -> list[State]:
        return [change.after for change in self.changes]
