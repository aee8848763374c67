"""A store against the memory store, over long random histories of counters, queues and slots.

The memory store is the reference: it has no network, and its figures are those of the pure
algorithms. Both stores take their time from the same clock and must return the same figures, each
rounded up to a tick.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import Outcome
from headgate.limiter import RateLimiter
from headgate.limits import (
    GCRA,
    Concurrency,
    DenyAll,
    FixedWindow,
    LeakyQueue,
    SlidingWindowLog,
    TokenBucket,
    Unlimited,
)
from headgate.stores import MemoryStore
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import ODD, TENS, StoreUnderTest
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.stores.operations import Operation

KEYS: Final = ("a", "b", "c")
STACKS: Final = (
    (TokenBucket(10, 1), FixedWindow(8, 10)),
    (SlidingWindowLog(5, 3), GCRA(rate=2, burst=9), Unlimited()),
    (DenyAll(), TokenBucket(10, 1)),
)
COUNTER_VERBS: Final = (
    *("hit", "hit", "hit_up_to", "peek", "hit_many", "charge", "refund", "reserve"),
    *("settle", "reset"),
)
HOLD_VERBS: Final = ("take", "take", "look", "charge", "refund", *("hold", "settle") * 3, "reset")
QUEUES: Final = tuple(
    [LeakyQueue(rate, queue, max_wait) for max_wait in (None, None, 0, 0.25)]
    for rate, queue in ((10, 8), (4, 20), (0.5, 5), (8_000, 12))
)
"""Queues for callers with different patience. Their units are whole ticks of every store, so that
places need no rounding."""
QUEUE_VERBS: Final = ("take", "take", "take", "look", "take_each", "charge", "refund", "cancel")
SLOTS: Final = (
    [Concurrency(5, 4), Concurrency(3, 4), Concurrency(5, 7)],
    *(
        [
            Concurrency(limit, 4, (("a", 3), ("b", 1)), part, lends)
            for limit in (5, 4)
            for part in (None, "a", "b")
        ]
        for lends in (True, False)
    ),
)
"""Limits that change while slots are held, and partitions."""
SLOT_VERBS: Final = ("enter", "enter", "look", "renew", "leave", "leave", "reset")


class HistoryContract(StoreUnderTest):
    """Every verb, at any time, returns what the memory store returns."""

    @needs("exact")
    def test_a_random_history_is_that_of_the_memory_store(self) -> None:
        alone = (*TENS, *ODD, DenyAll(), Unlimited())
        for limits in (*((limit,) for limit in alone), *STACKS):
            for seed in range(self.histories):
                LimiterHistory(self, limits, seed).play(150)

    def test_a_random_history_of_holds_that_expire_is_that_of_the_memory_store(self) -> None:
        for limit in (*TENS, *ODD):
            HoldHistory(self, [limit], HOLD_VERBS).play(150)

    def test_a_random_history_of_a_queue_is_that_of_the_memory_store(self) -> None:
        for limits in QUEUES:
            OperationHistory(self, limits, QUEUE_VERBS).play(120)

    def test_a_random_history_of_slots_is_that_of_the_memory_store(self) -> None:
        for limits in SLOTS:
            OperationHistory(self, limits, SLOT_VERBS).play(120)


class History:
    """A random history, played on the store of *subject* and on a memory store."""

    def __init__(self, subject: StoreUnderTest, verbs: tuple[str, ...], seed: int) -> None:
        self.subject = subject
        self.reference = MemoryStore(clock=subject.clock)
        self.verbs = verbs
        self.random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
        self.steps = [f"seed {seed}"]

    def play(self, steps: int) -> None:
        """Advance now and then, and apply *steps* random verbs."""
        for _ in range(steps):
            if self.random.random() < 0.5:
                nanoseconds = self.subject.rounded_up(self.pause_ns())
                self.steps.append(f"advance_ns({nanoseconds})")
                self.subject.clock.advance_ns(nanoseconds)
            self.apply(self.random.choice(self.verbs), self.random.choice(KEYS))

    def pause_ns(self) -> int:
        """Return a random time from one verb to the next."""
        raise NotImplementedError

    def apply(self, verb: str, key: str) -> None:
        """Apply *verb* to both stores, and compare the replies."""
        raise NotImplementedError

    def compare(self, found: object, expected: object) -> None:
        """Check that the store returned what the memory store did."""
        if found != expected:
            story = "\n".join(self.steps)
            raise AssertionError(f"got {found}, expected {expected}\n{story}")


class LimiterHistory(History):
    """A history of all verbs of a limiter with *limits*."""

    def __init__(self, subject: StoreUnderTest, limits: tuple[Limit, ...], seed: int) -> None:
        super().__init__(subject, COUNTER_VERBS, seed)
        self.steps.append(str(limits))
        quotas = [limit.quota for limit in limits if not isinstance(limit, Unlimited)]
        self.quota = max(quotas, default=0)
        self.period_ns = max(limit.period_ns for limit in limits)
        self.limiters = subject.limiter(limits), RateLimiter(limits, store=self.reference)
        self.reservations: list[list[Any]] = []

    def pause_ns(self) -> int:
        longest_ns = self.random.choice((1, 1_000, self.period_ns // 10, 2 * self.period_ns))
        return self.random.randint(0, longest_ns)

    def apply(self, verb: str, key: str) -> None:
        amount = self.cost() * (self.random.choice((1, 1, 5)) if verb == "charge" else 1)
        self.steps.append(f"{verb}({key!r}, {amount})")
        match verb:
            case "hit_many":
                hits = [(key, amount), (self.random.choice(KEYS), self.cost()), (key, self.cost())]
                for both in zip(*[one.hit_many(hits) for one in self.limiters], strict=True):
                    self.compare_figures(*both)
            case "hit_up_to":
                first, second = (one.hit_up_to(key, amount) for one in self.limiters)
                self.compare(first.granted, second.granted)
                self.compare_figures(first.decision, second.decision)
            case "reserve":
                ttl = self.random.randint(1, 1 + self.period_ns // 1_000) * 1_000 / SECOND
                pair = [one.reserve(key, amount, ttl) for one in self.limiters]
                self.compare(*[one.allowed for one in pair])
                if pair[0].allowed:
                    self.reservations.append(pair)
            case "settle":
                if self.reservations:
                    place = self.random.randrange(len(self.reservations))
                    pair = self.reservations.pop(place)
                    self.compare(*[one.commit(amount) for one in pair])
            case "reset":
                for limiter in self.limiters:
                    limiter.reset(key)
            case _:
                self.compare_figures(*[getattr(one, verb)(key, amount) for one in self.limiters])

    def cost(self) -> int:
        return self.random.choice((1, 1, 1, 2, 0, self.random.randint(0, self.quota + 1)))

    def compare_figures(self, found: Decision, expected: Decision) -> None:
        up = self.subject.rounded_up
        for one, other in zip((found, *found.limits), (expected, *expected.limits), strict=True):
            wait_ns = other.retry_after_ns
            self.compare(
                (one.allowed, one.remaining, one.retry_after_ns, one.reset_after_ns),
                (
                    other.allowed,
                    other.remaining,
                    None if wait_ns is None else up(wait_ns),
                    up(other.reset_after_ns),
                ),
            )


class OperationHistory(History):
    """A history of operations on counters under any of *limits*."""

    def __init__(
        self, subject: StoreUnderTest, limits: list[Any], verbs: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(subject, verbs, seed)
        self.limits = limits
        self.group = subject.new_name()
        self.places: list[tuple[Check, int]] = []

    def pause_ns(self) -> int:
        return self.random.choice((0, 0, 1, 20, 60, 100, 200, 900, 1_500)) * MILLISECOND

    def apply(self, verb: str, key: str) -> None:
        operation = self.operation(verb, key)
        self.steps.append(str(operation))
        found, expected = self.subject.run(operation), self.reference.run(operation)
        self.compare(found, self.in_ticks(expected))
        if isinstance(operation, Take) and found[0].place_ns:
            self.places.append((operation.checks[0], found[0].place_ns))

    def operation(self, verb: str, key: str) -> Operation[Any]:
        random = self.random
        check = Check(self.group, key, random.choice(self.limits), random.choice((1, 1, 1, 2, 3)))
        lease = f"lease {random.randrange(14)}"
        match verb:
            case "take":
                return Take((check,))
            case "take_each":
                return TakeEach((Take((check,)), Take((check,))))
            case "look":
                return Take((check,), consume=False)
            case "charge":
                return Charge((check,))
            case "refund":
                return Refund((check,))
            case "cancel":
                check, place_ns = random.choice(self.places or [(check, 0)])
                return CancelQueued((check,), (place_ns,))
            case "enter":
                return Take((check,), lease=lease)
            case "renew":
                return RenewSlot((check,), lease)
            case "leave":
                return ReleaseSlot((check,), lease)
        return Reset((check,))

    def in_ticks(self, reply: Any) -> Any:
        """Return *reply* with its times rounded up to ticks of the store."""
        if isinstance(reply, Outcome):
            wait_ns, up = reply.retry_after_ns, self.subject.rounded_up
            return reply._replace(
                retry_after_ns=None if wait_ns is None else up(wait_ns),
                reset_after_ns=up(reply.reset_after_ns),
                delay_ns=up(reply.delay_ns),
                place_ns=up(reply.place_ns),
            )
        return tuple(map(self.in_ticks, reply)) if isinstance(reply, tuple) else reply


class HoldHistory(OperationHistory):
    """A history of operations with holds that vanish when they expire, or are charged."""

    def operation(self, verb: str, key: str) -> Operation[Any]:
        operation, random = super().operation(verb, key), self.random
        if not isinstance(operation, Reset) or verb == "reset":
            return operation
        checks, name = operation.checks, f"hold {random.randrange(4)}"
        if verb == "settle":
            return Settle(checks, name, random.random() < 0.5)
        ttl_ns = random.choice((1, 70, 800, 3_000)) * MILLISECOND
        return Hold(checks, name, ttl_ns, charges_expired=random.random() < 0.7)
