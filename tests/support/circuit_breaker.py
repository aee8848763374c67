"""A breaker by itself, on a clock and with a chance that the test makes up."""

from __future__ import annotations

from headgate.stores.layers.circuit_breaker.breaker import Breaker, BreakerTerms, Change, State

TERMS = BreakerTerms()


class Tried:
    """A breaker, the time, and what it told."""

    def __init__(self, terms: BreakerTerms = TERMS) -> None:
        self.changes: list[Change] = []
        self.breaker = Breaker(terms, self.changes.append)
        self.now_ns = 10**12

    def admit(self, chance: float = 0.5) -> int | None:
        return self.breaker.admit(self.now_ns, chance)

    def succeed(self, ticket: int | None = None, chance: float = 0.5) -> None:
        given = self.admit(0.0) if ticket is None else ticket
        assert given is not None
        self.breaker.succeeded(given, self.now_ns, chance)

    def fail(self, ticket: int | None = None, chance: float = 0.5) -> None:
        given = self.admit(0.0) if ticket is None else ticket
        assert given is not None
        self.breaker.failed(given, "timeout", self.now_ns, chance)

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
