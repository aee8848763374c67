"""Random histories of loans, pots and totals: a store has to say what the memory store says.

Holders take loans, use them, lose replies, tell what they used, late or twice, and vanish. The
counters are taken from, charged and reset by others meanwhile. (The clock only goes on: one that is
set back makes stores stricter, each in its way.)
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Outcome
from headgate.limits import FixedWindow, SlidingWindowLog
from headgate.stores import Charge, Check, Hold, MemoryStore, Operation, Refund, Reset, Take
from headgate.stores.operations import Absorb, Draw, Lend, Lent, Pour
from headgate.testing.contract_subject import ODD, TENS, StoreUnderTest, needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.limits import Limit
    from headgate.testing.clock import ManualClock

KEYS = ("a", "b")
HOLDERS = ("one", "two", "three")


class Holder:
    """Who borrows: what it has, what it used, and what of that it knows to be charged."""

    def __init__(self) -> None:
        self.amount = 0
        self.used = 0
        self.told = 0

    def use(self, random: Random, *, is_charged: bool) -> None:
        used = random.randint(0, self.amount)
        self.amount -= used
        if not is_charged:
            self.used += used

    def heard(self, lent: Lent) -> None:
        self.told = self.used
        self.amount = lent.amount


class LoanHistory:
    """One random history, lived through by a store and by a memory store."""

    def __init__(
        self,
        run: Callable[[Operation[Any]], Any],
        limits: tuple[Limit, ...],
        group: str,
        clock: ManualClock,
        tick_ns: int,
        seed: int,
    ) -> None:
        self.run = run
        self.limits = limits
        self.group = group
        self.clock = clock
        self.tick_ns = tick_ns
        self.reference = MemoryStore(clock=clock)
        self.random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
        self.holders = {(holder, key): Holder() for holder in HOLDERS for key in KEYS}
        self.is_charged = self.random.random() < 0.5
        self.told = [f"seed {seed}, {limits}"]

    def live(self, steps: int) -> None:
        verbs = (self.lend, self.lend, self.lend, self.take, self.charge, self.refund, self.hold)
        rare = (self.absorb, self.absorb, self.pour, self.draw, self.draw, self.reset, self.switch)
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            self.random.choice(rare if self.random.random() < 0.25 else verbs)()

    def advance(self) -> None:
        period = self.limits[0].period_ns
        most = self.random.choice((1, 1_000, period // 10, period // 10, period, 3 * period))
        ticks = self.random.randint(0, max(1, most // self.tick_ns))
        self.told.append(f"advance_ns({ticks * self.tick_ns})")
        self.clock.advance_ns(ticks * self.tick_ns)

    def lend(self) -> None:
        name, key = self.random.choice(list(self.holders))
        holder = self.holders[name, key]
        holder.use(self.random, is_charged=self.is_charged)
        quota = self.limits[0].quota
        operation = Lend(
            self.check(key, self.random.choice((0, 1, 1, self.amount()))),
            name,
            self.random.choice((0, 1, quota // 3, quota + 1)),
            self.ttl_ns(),
            unused=self.random.choice((holder.amount, holder.amount, 0, holder.amount + 3)),
            used=holder.used,
            told=self.random.choice((holder.told, 0)),
            cap=self.random.choice((None, quota // 2, 1)),
            is_charged=self.is_charged if self.random.random() < 0.9 else not self.is_charged,
        )
        holder.amount = 0
        lent = self.compare(operation)
        if self.random.random() < 0.8:
            holder.heard(lent)
        else:
            self.told.append("  (nobody hears it)")

    def take(self) -> None:
        consume = self.random.random() < 0.7
        self.compare(Take((self.check(),), consume=consume))

    def charge(self) -> None:
        self.compare(Charge((self.check(),)))

    def refund(self) -> None:
        self.compare(Refund((self.check(),)))

    def hold(self) -> None:
        if self.random.random() < 0.3:
            self.compare(Hold((self.check(),), str(len(self.told)), self.ttl_ns()))

    def absorb(self) -> None:
        window = self.clock() // self.limits[0].period_ns - self.random.choice((0, 0, 0, 1, 1, 2))
        limit = self.random.choice(self.limits)  # elsewhere it may have been changed already
        checks = tuple(
            replace(self.check(key), limit=limit) for key in KEYS[: self.random.randint(1, 2)]
        )
        self.compare(Absorb(checks, self.random.choice(HOLDERS), window, 5 * self.ttl_ns()))

    def pour(self) -> None:
        self.compare(Pour(self.group, self.random.choice(KEYS), self.amount(), self.ttl_ns()))

    def draw(self) -> None:
        self.compare(Draw(self.group, self.random.choice(KEYS), self.amount() // 2))

    def reset(self) -> None:
        if self.random.random() < 0.3:
            self.compare(Reset((self.check(),)))

    def switch(self) -> None:
        """The limit is changed, for everybody."""
        if self.random.random() < 0.3:
            self.limits = (*self.limits[1:], self.limits[0])

    def check(self, key: str | None = None, cost: int | None = None) -> Check:
        key = self.random.choice(KEYS) if key is None else key
        return Check(self.group, key, self.limits[0], self.amount() if cost is None else cost)

    def amount(self) -> int:
        return self.random.choice((1, 1, 2, self.random.randint(0, self.limits[0].quota + 1)))

    def ttl_ns(self) -> int:
        most = self.limits[0].period_ns * self.random.choice((1, 1, 6)) // 2_000
        return self.random.randint(1, 1 + most) * 1_000

    def compare(self, operation: Operation[Any]) -> Any:
        self.told.append(f"{operation}")
        said, wanted = self.run(operation), self.rounded(self.reference.run(operation))
        story = "\n".join(self.told)
        assert said == wanted, f"{story}\nsaid   {said}\nwanted {wanted}"
        return said

    def rounded(self, reply: Any) -> Any:
        """*reply* as a store can tell it whose clock has ticks."""
        if isinstance(reply, Lent):
            return replace(
                reply,
                outcome=self.rounded(reply.outcome),
                lasts_ns=self.up(reply.lasts_ns),
                wait_ns=None if reply.wait_ns is None else self.up(reply.wait_ns),
            )
        if isinstance(reply, Outcome):
            allowed, remaining, wait_ns, reset_ns, _, _ = reply
            wait_ns = None if wait_ns is None else self.up(wait_ns)
            return Outcome(allowed, remaining, wait_ns, self.up(reset_ns))
        return tuple(map(self.rounded, reply)) if isinstance(reply, tuple) else reply

    def up(self, nanoseconds: int) -> int:
        return -(-nanoseconds // self.tick_ns) * self.tick_ns


@needs("lends")
class LoanHistoryContract(StoreUnderTest):
    """For stores that lend: whatever happens, they say what the memory store says."""

    def test_a_random_history_of_loans_is_that_of_the_memory_store(self) -> None:
        for seed, limit in enumerate((*TENS, *TENS, *ODD)):
            self.story((limit,), seed).live(70)

    def test_loans_outlive_a_change_of_the_limit_as_in_the_memory_store(self) -> None:
        for seed, limit in enumerate(TENS):
            for other in (TENS[0], FixedWindow(7, 10), SlidingWindowLog(13, 10)):
                self.story((limit, other), seed).live(50)

    def story(self, limits: tuple[Limit, ...], seed: int) -> LoanHistory:
        return LoanHistory(self.run, limits, self.new_name(), self.clock, self.tick_ns, seed)
