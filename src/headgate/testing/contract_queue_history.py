"""Queues against the pure algorithm, over long random histories."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from headgate.algorithms import LeakyQueueAlgorithm
from headgate.limits import LeakyQueue
from headgate.stores import Charge, Check, Refund, Take, TakeEach, Vacate
from headgate.testing.contract_subject import StoreUnderTest
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Outcome
    from headgate.algorithms.leaky_queue import Line

QUEUES: Final = (
    LeakyQueue(rate=10, queue=8),
    LeakyQueue(rate=3, queue=20),
    LeakyQueue(rate=0.3, queue=5),
    LeakyQueue(rate=7_000, queue=12),
    LeakyQueue(rate=13, queue=40),
)
KEYS: Final = ("a", "b")


class QueueHistory:
    """One random history, lived through by a store and by the pure algorithm.

    Every check may have a patience of its own: it is the same queue.
    """

    def __init__(self, subject: StoreUnderTest, limit: LeakyQueue, seed: int) -> None:
        self.subject = subject
        self.limit = limit
        self.group = subject.new_name()
        self.lines: dict[str, Line | None] = dict.fromkeys(KEYS)
        self.promised: list[tuple[str, int, int, int]] = []
        self.random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
        self.told = [f"seed {seed}: {limit!r}"]

    def live(self, steps: int) -> None:
        verbs = (self.take, self.take, self.take, self.take_each, self.look, self.charge)
        rare = (self.vacate, self.vacate, self.refund)
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            self.random.choice(rare if self.random.random() < 0.35 else verbs)(
                self.random.choice(KEYS)
            )

    def advance(self) -> None:
        unit = int(SECOND / self.limit.per_second)
        most = self.random.choice((10, unit, 2 * unit, 20 * unit))
        nanoseconds = self.random.randint(0, most // self.subject.tick_ns) * self.subject.tick_ns
        self.told.append(f"advance_ns({nanoseconds})")
        self.subject.clock.advance_ns(nanoseconds)

    def take(self, key: str) -> None:
        asked = [self.check(key)]
        outcomes = self.subject.run(Take(tuple(asked)))
        self.compare(asked, outcomes)

    def take_each(self, key: str) -> None:
        asked = [self.check(key), self.check(self.random.choice(KEYS)), self.check(key)]
        takes = TakeEach(tuple([Take((check,)) for check in asked]))
        outcomes = [one[0] for one in self.subject.run(takes) if isinstance(one, tuple)]
        self.compare(asked, outcomes)

    def look(self, key: str) -> None:
        asked = [self.check(key)]
        outcomes = self.subject.run(Take(tuple(asked), consume=False))
        self.compare(asked, outcomes, consume=False)

    def charge(self, key: str) -> None:
        check = Check(self.group, key, self.limit, self.random.choice((1, 2, 5)))
        self.told.append(f"charge {check.cost} of {key}")
        self.subject.run(Charge((check,)))
        self.lines[key] = self.algorithm.charge(self.lines[key], check.cost, self.now)

    def refund(self, key: str) -> None:
        check = Check(self.group, key, self.limit, self.random.choice((1, 2)))
        self.told.append(f"refund {check.cost} of {key}")
        self.subject.run(Refund((check,)))
        if (line := self.lines[key]) is not None:
            self.lines[key] = self.algorithm.refund(line, check.cost, self.now)

    def vacate(self, _key: str) -> None:
        if not self.promised:
            return
        place = self.random.randrange(len(self.promised))
        key, told_ns, exact_ns, cost = self.promised[place]
        if self.random.random() < 0.8:
            del self.promised[place]
        check = Check(self.group, key, self.check(key).limit, cost)
        self.told.append(f"vacate {cost} of {key} at {told_ns}")
        line = self.algorithm.vacate(self.lines[key], exact_ns, cost, self.now)
        assert self.subject.run(Vacate((check,), (told_ns,))) == (line is not None), self.story()
        self.lines[key] = line or self.lines[key]

    @property
    def algorithm(self) -> LeakyQueueAlgorithm:
        return LeakyQueueAlgorithm(self.limit, grain_ns=self.subject.tick_ns)

    @property
    def now(self) -> int:
        return self.subject.clock()

    def check(self, key: str) -> Check:
        unit = SECOND / self.limit.per_second
        wait = self.random.choice((None, None, None, 0, int(self.random.randint(0, 9) * unit)))
        max_wait = wait if wait is None else wait / SECOND
        limit = LeakyQueue(self.limit.rate, self.limit.queue, max_wait)
        cost = self.random.choice((1, 1, 1, 2, 3, 0))
        self.told.append(f"take {cost} of {key} within {max_wait}")
        return Check(self.group, key, limit, cost)

    def compare(
        self, asked: list[Check], outcomes: Sequence[Outcome], *, consume: bool = True
    ) -> None:
        for check, outcome in zip(asked, outcomes, strict=True):
            assert isinstance(check.limit, LeakyQueue)
            algorithm = LeakyQueueAlgorithm(check.limit, grain_ns=self.subject.tick_ns)
            line, expected = algorithm.take(self.lines[check.key], check.cost, self.now)
            if consume:
                self.lines[check.key] = line
            else:
                seen = algorithm.outcome(self.lines[check.key], expected.retry_after_ns, self.now)
                expected = seen._replace(delay_ns=expected.delay_ns, turn_ns=expected.turn_ns)
            wanted = self.in_ticks(expected)
            assert outcome == wanted, f"said {outcome}, wanted {wanted}\n{self.story()}"
            if consume and outcome.turn_ns:
                turn = check.key, outcome.turn_ns, expected.turn_ns, check.cost
                self.promised.append(turn)

    def in_ticks(self, outcome: Outcome) -> Outcome:
        wait, up = outcome.retry_after_ns, self.subject.rounded_up
        return outcome._replace(
            retry_after_ns=None if wait is None else up(wait),
            reset_after_ns=up(outcome.reset_after_ns),
            delay_ns=up(outcome.delay_ns),
            turn_ns=up(outcome.turn_ns),
        )

    def story(self) -> str:
        return "\n".join(self.told)


class QueueHistoryContract(StoreUnderTest):
    """Turns, at any time, are those of the pure algorithm."""

    def test_a_random_history_of_a_queue_is_that_of_the_pure_algorithm(self) -> None:
        for limit in QUEUES:
            for seed in range(2):
                QueueHistory(self, limit, seed).live(80)
