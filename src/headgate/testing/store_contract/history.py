"""A store against the pure algorithm, over long random histories.

The model below keeps one state per key in a dict and asks `headgate.algorithms` for everything.
It has no expiry, no threads, no fast path and no network. A store must return the same figures.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Outcome, algorithm_for
from headgate.algorithms.reservations import Hold, open_holds, outcome_beside, wait_beside
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import ODD, TENS, StoreUnderTest

if TYPE_CHECKING:
    from headgate.algorithms.reservations import Holds
    from headgate.decision import Decision
    from headgate.limiter import RateLimiter
    from headgate.limiter.holds import Reservation
    from headgate.limits import Limit
    from headgate.testing.clock import ManualClock
    from headgate.units import Seconds

KEYS = ("a", "b", "c")


class Model:
    """The expected behaviour of a store, in the simplest form."""

    def __init__(self, limit: Limit) -> None:
        self.algorithm = algorithm_for(limit)
        self.states: dict[str, Any] = {}
        self.holds: dict[str, Holds] = {}

    def hit(self, key: str, cost: int, now: int) -> Outcome:
        outcome = self.peek(key, cost, now)
        if not outcome.allowed or not cost:
            return outcome
        self.states[key] = self.algorithm.charge(self.states.get(key), cost, now)
        return self._outcome(key, 0, now)

    def peek(self, key: str, cost: int, now: int) -> Outcome:
        holds = self._holds(key, now)
        wait = wait_beside(self.algorithm, self.states.get(key), holds, cost, now) if cost else 0
        return self._outcome(key, wait, now)

    def reserve(self, key: str, cost: int, name: str, expires: int, now: int) -> Outcome:
        outcome = self.peek(key, cost, now)
        if outcome.allowed:
            self.holds[key] = {**self._holds(key, now), name: Hold(cost, expires)}
        return outcome

    def settle(self, key: str, name: str, actual: int, now: int) -> bool:
        was_open = name in self._holds(key, now)
        self.holds.get(key, {}).pop(name, None)
        self.charge(key, actual, now)
        return was_open

    def charge(self, key: str, amount: int, now: int) -> None:
        if amount:
            self.states[key] = self.algorithm.charge(self.states.get(key), amount, now)

    def refund(self, key: str, amount: int, now: int) -> None:
        if amount and self.states.get(key) is not None:
            self.states[key] = self.algorithm.refund(self.states[key], amount, now)

    def reset(self, key: str) -> None:
        self.states.pop(key, None)
        self.holds.pop(key, None)

    def _outcome(self, key: str, wait: int | None, now: int) -> Outcome:
        state, holds = self.states.get(key), self._holds(key, now)
        return outcome_beside(self.algorithm, state, holds, wait, now)

    def _holds(self, key: str, now: int) -> Holds:
        return open_holds(self.holds.get(key, {}), now)


class History:
    """A random history, played on a limiter and on the model."""

    def __init__(
        self, limit: Limit, limiter: RateLimiter, clock: ManualClock, tick_ns: int, seed: int
    ) -> None:
        self.limit = limit
        self.limiter = limiter
        self.clock = clock
        self.tick_ns = tick_ns
        self.model = Model(limit)
        self.random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
        self.open: list[tuple[str, str, Reservation]] = []
        self.steps: list[str] = []

    def play(self, steps: int) -> None:
        verbs = (self.hit, self.peek, self.hit_many, self.charge, self.refund, self.reserve)
        rare = (self.settle, self.settle, self.reset)
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            verb = self.random.choice(rare if self.random.random() < 0.25 else (*verbs, self.hit))
            verb(self.random.choice(KEYS))

    def advance(self) -> None:
        most = self.random.choice((1, 1_000, self.limit.period_ns // 10, 2 * self.limit.period_ns))
        nanoseconds = self.random.randint(0, max(1, most // self.tick_ns)) * self.tick_ns
        self.steps.append(f"advance_ns({nanoseconds})")
        self.clock.advance_ns(nanoseconds)

    def hit(self, key: str) -> None:
        cost = self.cost()
        self.steps.append(f"hit({key!r}, {cost})")
        self.compare(self.limiter.hit(key, cost), self.model.hit(key, cost, self.clock()))

    def peek(self, key: str) -> None:
        cost = self.cost()
        self.steps.append(f"peek({key!r}, {cost})")
        self.compare(self.limiter.peek(key, cost), self.model.peek(key, cost, self.clock()))

    def hit_many(self, key: str) -> None:
        asked = [(key, self.cost()), (self.random.choice(KEYS), self.cost()), (key, self.cost())]
        self.steps.append(f"hit_many({asked})")
        decisions = self.limiter.hit_many(asked)
        for decision, (whose, cost) in zip(decisions, asked, strict=True):
            self.compare(decision, self.model.hit(whose, cost, self.clock()))

    def charge(self, key: str) -> None:
        amount = self.cost() * self.random.choice((1, 1, 1, 5))
        self.steps.append(f"charge({key!r}, {amount})")
        decision = self.limiter.charge(key, amount)
        self.model.charge(key, amount, self.clock())
        self.compare(decision, self.model.peek(key, 1, self.clock()))

    def refund(self, key: str) -> None:
        amount = self.cost()
        self.steps.append(f"refund({key!r}, {amount})")
        decision = self.limiter.refund(key, amount)
        self.model.refund(key, amount, self.clock())
        self.compare(decision, self.model.peek(key, 1, self.clock()))

    def reserve(self, key: str) -> None:
        cost, name = 1 + self.cost() // 3, str(len(self.steps))
        ttl_ns = self.random.randint(1, 1 + self.limit.period_ns // 1_000) * 1_000
        ttl: Seconds = ttl_ns / 1_000_000_000
        self.steps.append(f"reserve({key!r}, {cost}, {ttl})")
        now = self.clock()
        reservation = self.limiter.reserve(key, cost, ttl)
        expected = self.model.reserve(key, cost, name, now + ttl_ns, now)
        assert reservation.allowed == expected.allowed, self.story()
        if reservation.allowed:
            self.open.append((key, name, reservation))

    def settle(self, _key: str) -> None:
        if not self.open:
            return
        key, name, reservation = self.open.pop(self.random.randrange(len(self.open)))
        actual = self.random.choice((0, 0, 1, 3, self.limit.quota))
        self.steps.append(f"commit({actual}) of {key!r}")
        was_open = reservation.commit(actual)
        expected = self.model.settle(key, name, actual, self.clock())
        assert was_open == expected, self.story()

    def reset(self, key: str) -> None:
        self.steps.append(f"reset({key!r})")
        self.limiter.reset(key)
        self.model.reset(key)

    def cost(self) -> int:
        return self.random.choice((1, 1, 1, 2, 0, self.random.randint(0, self.limit.quota + 1)))

    def compare(self, decision: Decision, expected: Outcome) -> None:
        wait_ns = expected.retry_after_ns
        expected_figures = (
            expected.allowed,
            expected.remaining,
            None if wait_ns is None else self.in_ticks(wait_ns),
            self.in_ticks(expected.reset_after_ns),
        )
        figures = (
            decision.allowed,
            decision.remaining,
            decision.retry_after_ns,
            decision.reset_after_ns,
        )
        assert figures == expected_figures, (
            f"got {figures}, expected {expected_figures}\n{self.story()}"
        )

    def in_ticks(self, nanoseconds: int) -> int:
        return -(-nanoseconds // self.tick_ns) * self.tick_ns

    def story(self) -> str:
        return "\n".join([f"{self.limit!r}", *self.steps])


class HistoryContract(StoreUnderTest):
    """Every verb, at any time, returns what the pure algorithm returns."""

    @needs("exact")
    def test_a_random_history_is_that_of_the_pure_algorithm(self) -> None:
        for limit in (*TENS, *ODD):
            for seed in range(self.histories):
                limiter = self.limiter(limit)
                History(limit, limiter, self.clock, self.tick_ns, seed).play(150)
