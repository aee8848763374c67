"""Loans, pots and what was used elsewhere, as requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.operations import Absorb, Draw, Lend, Lent, Pour
from headgate.stores.redis.calls.requests import (
    Arguments,
    ScriptRequest,
    Waiter,
    asked,
    disappoint,
    listed,
    outcomes_of_one,
    outcomes_of_take,
)
from headgate.stores.redis.counters.figures import rounded_up
from headgate.stores.redis.counters.naming import POT
from headgate.stores.redis.counters.scripts import script
from headgate.stores.redis.counters.specs import LARGEST_CHARGE, spec_of
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from headgate.errors import StoreError
    from headgate.stores.redis.counters.naming import Names
    from headgate.stores.redis.request import Reply


class LendRequest(ScriptRequest):
    """A check, and a loan."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Lend, names: Names, now: bytes, waiter: Waiter) -> None:
        keys, specs = asked((operation.check,), names)
        arguments: Arguments = [
            now,
            _word(operation.holder),
            _bounded(operation.most),
            operation.ttl_ns // MICROSECOND,
            _bounded(operation.unused),
            _bounded(operation.used),
            _bounded(operation.told),
            b"" if operation.cap is None else _bounded(operation.cap),
            int(operation.is_charged),
            1,
            *specs,
        ]
        super().__init__(script("lend"), keys, arguments)
        self._operation = operation
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        now, taken, amount, lasts, holders, lent, after = listed(reply)
        if self.waiter.done():
            return
        check = self._operation.check
        (outcome,) = outcomes_of_take((check,), taken, now, consume=True)
        wanted = check.cost + self._operation.most
        counter = spec_of(check.limit).counter(after, now * MICROSECOND)
        wait = counter.wait(wanted) if wanted else 0
        wait_ns = None if wait is None else rounded_up(wait)
        lasts_ns = lasts * MICROSECOND
        self.waiter.set_result(Lent(outcome, amount, lasts_ns, holders, lent, wait_ns))

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


class PotRequest(ScriptRequest):
    """Something put into a pot, or taken out."""

    __slots__ = ()

    def __init__(self, operation: Pour | Draw, names: Names, now: bytes, waiter: Waiter) -> None:
        name = names.counter(operation.group, operation.key, POT)
        arguments: Arguments = [now, _bounded(operation.amount)]
        if isinstance(operation, Pour):
            arguments.append(operation.ttl_ns // MICROSECOND)
        verb = "pour" if isinstance(operation, Pour) else "draw"
        super().__init__(script(verb), [name], arguments)
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        if reply is not None and type(reply) is not int:
            raise TypeError(f"a number was expected, not {reply!r}")
        if not self.waiter.done():
            self.waiter.set_result(reply)

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


class AbsorbRequest(ScriptRequest):
    """What one origin has used of several counters."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Absorb, names: Names, now: bytes, waiter: Waiter) -> None:
        keys, specs = asked(operation.checks, names)
        ttl = operation.ttl_ns // MICROSECOND
        about: Arguments = [_word(operation.origin), operation.window, ttl, len(operation.checks)]
        super().__init__(script("absorb"), keys, [now, *about, *specs])
        self._operation = operation
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        now, told = listed(reply)
        if not self.waiter.done():
            self.waiter.set_result(outcomes_of_one(self._operation.checks, told, now))

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


def _word(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _bounded(amount: int) -> int:
    """*amount* as doubles can add it up."""
    return min(max(amount, 0), LARGEST_CHARGE)
