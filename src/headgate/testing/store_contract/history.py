"""A store against the pure algorithms, over long random histories: counters, queues and slots.

The models below keep one state per key and leave everything else to `headgate.algorithms`. They
have no expiry, no threads, no fast path and no network. A store must return the same figures.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import (
    ConcurrencyAlgorithm,
    LeakyQueueAlgorithm,
    Outcome,
    algorithm_for,
)
from headgate.algorithms.reservations import Hold, open_holds, outcome_beside, wait_beside
from headgate.limits import Concurrency, LeakyQueue
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Take,
    TakeEach,
)
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import ODD, TENS, StoreUnderTest
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.algorithms.concurrency import Slots
    from headgate.algorithms.leaky_queue import Line
    from headgate.algorithms.reservations import Holds
    from headgate.decision import Decision
    from headgate.limiter.holds import Reservation
    from headgate.limits import Limit

    Verb = Callable[[str], None]

KEYS: Final = ("a", "b", "c")
QUEUES: Final = (
    LeakyQueue(rate=10, queue=8),
    LeakyQueue(rate=3, queue=20),
    LeakyQueue(rate=0.3, queue=5),
    LeakyQueue(rate=7_000, queue=12),
    LeakyQueue(rate=13, queue=40),
)
SLOTS: Final = (
    *(Concurrency(limit, ttl) for limit, ttl in ((5, 4), (3, 4), (5, 7))),
    *(
        Concurrency(limit, ttl, shares, part, lends)
        for limit, ttl in ((5, 4), (4, 4), (7, 3))
        for shares in ((("a", 3), ("b", 1)), (("a", 1), ("b", 1), ("c", 2)))
        for part in (None, "a", "b")
        for lends in (True, True, False)
    ),
)
"""Limits that are applied to the one counter of a history, one after another."""
SLOT_SEEDS: Final = (0, 10, 31, 38, 48, 156, 174)
"""Histories of slots that reveal every known mistake."""
SLOT_VERBS: Final = ("take",) * 8 + ("look", "renew", "renew") + ("leave",) * 4 + ("reset",)
PAUSES: Final = (0,) * 6 + (1, 1, 20_000, 62_500, 100_000, 200_000, 900_000, 1_500_000)
QUICK: Final = (0,) * 4 + (1, 20_000, 62_500, 100_000, 190_000)
"""Microseconds from one step of a history of slots to the next."""


class HistoryContract(StoreUnderTest):
    """Every verb, at any time, returns what the pure algorithm returns."""

    @needs("exact")
    def test_a_random_history_is_that_of_the_pure_algorithm(self) -> None:
        for limit in (*TENS, *ODD):
            for seed in range(self.histories):
                CounterHistory(self, limit, seed).play(150)

    def test_a_random_history_of_a_queue_is_that_of_the_pure_algorithm(self) -> None:
        for limit in QUEUES:
            for seed in range(2):
                QueueHistory(self, limit, seed).play(80)

    def test_a_random_history_of_slots_is_that_of_the_pure_algorithm(self) -> None:
        for seed in SLOT_SEEDS:
            play_slots(self, seed)


class History:
    """A random history, played on the store of *subject* and on a model."""

    verbs: tuple[Verb, ...]
    rare_verbs: tuple[Verb, ...]

    def __init__(self, subject: StoreUnderTest, limit: Limit, seed: int) -> None:
        self.subject = subject
        self.clock = subject.clock
        self.group = subject.new_name()
        self.random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
        self.steps = [f"seed {seed}: {limit!r}"]

    def play(self, steps: int) -> None:
        """Advance now and then, and apply *steps* random verbs."""
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            is_rare = self.random.random() < 0.3
            verb = self.random.choice(self.rare_verbs if is_rare else self.verbs)
            verb(self.random.choice(KEYS))

    def pauses_ns(self) -> Sequence[int]:
        """Return the longest pauses between two verbs, one of which is chosen."""
        raise NotImplementedError

    def advance(self) -> None:
        """Advance by a random pause of whole ticks."""
        tick_ns = self.subject.tick_ns
        most = max(1, self.random.choice(self.pauses_ns()) // tick_ns)
        nanoseconds = self.random.randint(0, most) * tick_ns
        self.steps.append(f"advance_ns({nanoseconds})")
        self.clock.advance_ns(nanoseconds)

    def compare(self, found: object, expected: object) -> None:
        """Check that the store returned what the model did."""
        if found != expected:
            story = "\n".join(self.steps)
            raise AssertionError(f"got {found}, expected {expected}\n{story}")

    def in_ticks(self, outcome: Outcome) -> Outcome:
        """Return *outcome* with its times rounded up to ticks of the store."""
        wait, up = outcome.retry_after_ns, self.subject.rounded_up
        return outcome._replace(
            retry_after_ns=None if wait is None else up(wait),
            reset_after_ns=up(outcome.reset_after_ns),
            delay_ns=up(outcome.delay_ns),
            place_ns=up(outcome.place_ns),
        )


# Counters.


class CounterModel:
    """The counters of a limit with their reservations, in the simplest form."""

    def __init__(self, limit: Limit) -> None:
        self.algorithm = algorithm_for(limit)
        self.states: dict[str, Any] = {}
        self.holds: dict[str, Holds] = {}

    def hit(self, key: str, cost: int, now: int) -> Outcome:
        outcome = self.peek(key, cost, now)
        if not outcome.allowed or not cost:
            return outcome
        self.charge(key, cost, now)
        return self._outcome(key, 0, now)

    def peek(self, key: str, cost: int, now: int) -> Outcome:
        holds = self._holds(key, now)
        wait = wait_beside(self.algorithm, self.states.get(key), holds, cost, now) if cost else 0
        return self._outcome(key, wait, now)

    def reserve(self, key: str, cost: int, name: str, expires: int, now: int) -> bool:
        is_allowed = self.peek(key, cost, now).allowed
        if is_allowed:
            self.holds[key] = {**self._holds(key, now), name: Hold(cost, expires)}
        return is_allowed

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


class CounterHistory(History):
    """A history of a limiter."""

    def __init__(self, subject: StoreUnderTest, limit: Limit, seed: int) -> None:
        super().__init__(subject, limit, seed)
        self.limit = limit
        self.limiter = subject.limiter(limit)
        self.model = CounterModel(limit)
        self.open: list[tuple[str, str, Reservation]] = []
        hit, peek = partial(self.decide, "hit"), partial(self.decide, "peek")
        charge, refund = partial(self.change, "charge"), partial(self.change, "refund")
        self.verbs = (hit, hit, peek, self.hit_many, charge, refund, self.reserve)
        self.rare_verbs = (self.settle, self.settle, self.reset)

    def pauses_ns(self) -> Sequence[int]:
        return 1, 1_000, self.limit.period_ns // 10, 2 * self.limit.period_ns

    def decide(self, verb: str, key: str) -> None:
        cost = self.cost()
        self.steps.append(f"{verb}({key!r}, {cost})")
        expected = getattr(self.model, verb)(key, cost, self.clock())
        self.compare_figures(getattr(self.limiter, verb)(key, cost), expected)

    def hit_many(self, key: str) -> None:
        hits = [(key, self.cost()), (self.random.choice(KEYS), self.cost()), (key, self.cost())]
        self.steps.append(f"hit_many({hits})")
        for decision, hit in zip(self.limiter.hit_many(hits), hits, strict=True):
            self.compare_figures(decision, self.model.hit(*hit, self.clock()))

    def change(self, verb: str, key: str) -> None:
        amount = self.cost() * self.random.choice((1, 1, 1, 5))
        self.steps.append(f"{verb}({key!r}, {amount})")
        decision = getattr(self.limiter, verb)(key, amount)
        getattr(self.model, verb)(key, amount, self.clock())
        self.compare_figures(decision, self.model.peek(key, 1, self.clock()))

    def reserve(self, key: str) -> None:
        cost, name = 1 + self.cost() // 3, str(len(self.steps))
        ttl_ns = self.random.randint(1, 1 + self.limit.period_ns // 1_000) * 1_000
        self.steps.append(f"reserve({key!r}, {cost}, {ttl_ns / SECOND})")
        now = self.clock()
        reservation = self.limiter.reserve(key, cost, ttl_ns / SECOND)
        expected = self.model.reserve(key, cost, name, now + ttl_ns, now)
        self.compare(reservation.allowed, expected)
        if reservation.allowed:
            self.open.append((key, name, reservation))

    def settle(self, _key: str) -> None:
        if not self.open:
            return
        key, name, reservation = self.open.pop(self.random.randrange(len(self.open)))
        actual = self.random.choice((0, 0, 1, 3, self.limit.quota))
        self.steps.append(f"commit({actual}) of {key!r}")
        expected = self.model.settle(key, name, actual, self.clock())
        self.compare(reservation.commit(actual), expected)

    def reset(self, key: str) -> None:
        self.steps.append(f"reset({key!r})")
        self.limiter.reset(key)
        self.model.reset(key)

    def cost(self) -> int:
        return self.random.choice((1, 1, 1, 2, 0, self.random.randint(0, self.limit.quota + 1)))

    def compare_figures(self, decision: Decision, expected: Outcome) -> None:
        figures = ("allowed", "remaining", "retry_after_ns", "reset_after_ns")
        rounded = self.in_ticks(expected)
        self.compare(
            [getattr(decision, name) for name in figures],
            [getattr(rounded, name) for name in figures],
        )


# Queues.


class QueueHistory(History):
    """A history of a queue. Every check may have a patience of its own: it is the same queue."""

    def __init__(self, subject: StoreUnderTest, limit: LeakyQueue, seed: int) -> None:
        super().__init__(subject, limit, seed)
        self.limit = limit
        self.unit_ns = int(SECOND / limit.per_second)
        self.algorithm = self.algorithm_of(limit)
        self.lines: dict[str, Line | None] = dict.fromkeys(KEYS)
        self.promised: list[tuple[str, int, int, int]] = []
        self.verbs = (self.take, self.take, self.take, self.take_each, self.look, self.charge)
        self.rare_verbs = (self.cancel, self.cancel, self.refund)

    def pauses_ns(self) -> Sequence[int]:
        return 10, self.unit_ns, 2 * self.unit_ns, 20 * self.unit_ns

    def algorithm_of(self, limit: Limit) -> LeakyQueueAlgorithm:
        assert isinstance(limit, LeakyQueue)
        return LeakyQueueAlgorithm(limit, grain_ns=self.subject.tick_ns)

    def take(self, key: str) -> None:
        check = self.check(key)
        self.compare_place(check, self.subject.run(Take((check,)))[0])

    def take_each(self, key: str) -> None:
        checks = [self.check(key), self.check(self.random.choice(KEYS)), self.check(key)]
        replies = self.subject.run(TakeEach(tuple([Take((check,)) for check in checks])))
        for check, reply in zip(checks, replies, strict=True):
            assert isinstance(reply, tuple)
            self.compare_place(check, reply[0])

    def look(self, key: str) -> None:
        check = self.check(key)
        (outcome,) = self.subject.run(Take((check,), consume=False))
        line, now, algorithm = self.lines[key], self.clock(), self.algorithm_of(check.limit)
        _, taken = algorithm.take(line, check.cost, now)
        seen = algorithm.outcome(line, taken.retry_after_ns, now)
        expected = seen._replace(delay_ns=taken.delay_ns, place_ns=taken.place_ns)
        self.compare(outcome, self.in_ticks(expected))

    def charge(self, key: str) -> None:
        amount = self.random.choice((1, 2, 5))
        self.steps.append(f"charge {amount} of {key}")
        self.subject.run(Charge((Check(self.group, key, self.limit, amount),)))
        self.lines[key] = self.algorithm.charge(self.lines[key], amount, self.clock())

    def refund(self, key: str) -> None:
        amount = self.random.choice((1, 2))
        self.steps.append(f"refund {amount} of {key}")
        self.subject.run(Refund((Check(self.group, key, self.limit, amount),)))
        if (line := self.lines[key]) is not None:
            self.lines[key] = self.algorithm.refund(line, amount, self.clock())

    def cancel(self, _key: str) -> None:
        if not self.promised:
            return
        index = self.random.randrange(len(self.promised))
        key, place_ns, exact_ns, cost = self.promised[index]
        if self.random.random() < 0.8:
            del self.promised[index]
        check = replace(self.check(key), cost=cost)
        self.steps.append(f"cancel {cost} of {key} at {place_ns}")
        line = self.algorithm.vacate(self.lines[key], exact_ns, cost, self.clock())
        self.compare(self.subject.run(CancelQueued((check,), (place_ns,))), line is not None)
        self.lines[key] = line or self.lines[key]

    def check(self, key: str) -> Check:
        """Return a check of *key*, with a random cost and patience."""
        waits = None, None, None, 0, self.random.randint(0, 9) * self.unit_ns
        wait_ns = self.random.choice(waits)
        max_wait = None if wait_ns is None else wait_ns / SECOND
        cost = self.random.choice((1, 1, 1, 2, 3, 0))
        self.steps.append(f"take {cost} of {key} within {max_wait}")
        return Check(self.group, key, LeakyQueue(self.limit.rate, self.limit.queue, max_wait), cost)

    def compare_place(self, check: Check, outcome: Outcome) -> None:
        algorithm = self.algorithm_of(check.limit)
        line, expected = algorithm.take(self.lines[check.key], check.cost, self.clock())
        self.lines[check.key] = line
        self.compare(outcome, self.in_ticks(expected))
        if outcome.place_ns:
            place = check.key, outcome.place_ns, expected.place_ns, check.cost
            self.promised.append(place)


# Slots, under policies that change.


def play_slots(subject: StoreUnderTest, seed: int) -> None:
    """Play the history of *seed* on one counter, under limits that change."""
    random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
    group, model, run = subject.new_name(), SlotsModel(), subject.run
    limits = _usual_limits(random)
    pauses = random.choice((PAUSES, QUICK))
    for step in range(120):
        subject.clock.advance_ns(random.choice(pauses) * 1_000)
        check = Check(group, "key", random.choice(limits), random.choice((1, 1, 1, 1, 2, 0)))
        lease, now = f"lease{random.randrange(14)}", subject.clock()
        found: object = None
        expected: object = None
        match random.choice(SLOT_VERBS):
            case "take" if check.cost:
                (found,) = run(Take((check,), lease=lease))
                expected = model.take(check, lease, now)
            case "look" | "take":
                (found,) = run(Take((check,), consume=False))
                expected = model.look(check, now)
            case "renew":
                found = run(RenewSlot((check,), lease))
                expected = model.renew(check, lease, now)
            case "leave":
                if pauses is QUICK:
                    lease, check = model.held(random, lease, check, limits)
                found = run(ReleaseSlot((check,), lease))
                expected = model.leave(check, lease, now)
            case _ if step % 9 == 0:
                run(Reset((check,)))
                model.state = None
        assert found == expected, f"seed {seed}, step {step}: {check}, {lease}"


def _usual_limits(random: Random) -> list[Concurrency]:
    """Return the partitions under one limit, most of the time, and perhaps some others."""
    limit = random.choice(SLOTS[3:])
    parts = [replace(limit, partition=part) for part in (None, "a", "a", "b")]
    return parts * 2 + random.sample(SLOTS, random.choice((0, 1, 6)))


class SlotsModel:
    """The slots of one counter, by the pure algorithm."""

    def __init__(self) -> None:
        self.state: Slots | None = None

    def take(self, check: Check, lease: str, now: int) -> Outcome:
        algorithm = _slots_of(check)
        wait = algorithm.wait(self.state, check.cost, now)
        if wait == 0:
            self.state = algorithm.enter(self.state, lease, now)
        outcome = algorithm.outcome(self.state, wait, now)
        if wait:
            self.state = algorithm.deny(self.state, check.cost, now)
        return outcome

    def look(self, check: Check, now: int) -> Outcome:
        algorithm = _slots_of(check)
        wait = algorithm.wait(self.state, check.cost, now) if check.cost else 0
        return algorithm.outcome(self.state, wait, now)

    def renew(self, check: Check, lease: str, now: int) -> bool:
        algorithm = _slots_of(check)
        if self.state is None or not algorithm.holds(self.state, lease, now):
            return False
        self.state = algorithm.renew(self.state, lease, now)
        return True

    def leave(self, check: Check, lease: str, now: int) -> bool:
        algorithm = _slots_of(check)
        had = algorithm.holds(self.state, lease, now)
        self.state = algorithm.leave(self.state, lease, now)
        return had

    def held(
        self, random: Random, lease: str, check: Check, limits: list[Concurrency]
    ) -> tuple[str, Check]:
        """Return an open lease, and *check* as its partition would make it."""
        if self.state is None or not self.state.leases:
            return lease, check
        lease = random.choice(list(self.state.leases))
        part = self.state.leases[lease].part
        own = [limit for limit in limits if limit.partition == part]
        return lease, replace(check, limit=random.choice(own)) if own else check


def _slots_of(check: Check) -> ConcurrencyAlgorithm:
    assert isinstance(check.limit, Concurrency)
    return ConcurrencyAlgorithm(check.limit)
