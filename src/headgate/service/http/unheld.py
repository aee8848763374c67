"""Reservations that were granted while the store was gone: held nowhere, but settled all the same.

The id has all that is to be charged, and the store is told when it is settled. Since it has no hold
that could be settled once, it is given a mark: a counter with room for one, in the store or, while
that is still gone, in this process, which tells the store of both afterwards. So nothing is charged
twice, by whichever worker; but for two workers that settle it at the same time without a store.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.decisions import OnFailure
from headgate.errors import StoreError
from headgate.fallback import Asked
from headgate.limits import TokenBucket
from headgate.stores.operations import Charge, Check, Take
from headgate.stores.port import group_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.engine import AsyncRunner
    from headgate.rules.model import Rule
    from headgate.service.http.receipts import HeldRule, Receipt

    Rules = Callable[[str], Rule | None]
    """From the id of a rule to that of the policy in force."""

MOST_KNOWN: Final = 10_000
"""Of how many it is known that they were granted, and charged by an estimate, in this process."""


class Unheld:
    """Settles them by *runner*. None of them lasts longer than *longest* seconds."""

    def __init__(self, runner: AsyncRunner, namespace: str, longest: float) -> None:
        self._runner = runner
        self._group = group_name(namespace, "reservation!settled")
        self._once = TokenBucket(1, Fraction(1, 2 * (int(longest) + 1)))
        self._granted: dict[str, None] = {}

    def granted(self, receipt: Receipt) -> None:
        """It was granted here, where the counters of this process were charged what it holds."""
        if len(self._granted) >= MOST_KNOWN:
            self._granted.pop(next(iter(self._granted)))
        self._granted[receipt.name] = None

    async def settle(self, receipt: Receipt, amounts: Mapping[str, int], rules: Rules) -> bool:
        """Charge each rule its amount; False if that was done before.

        Raises `StoreError` if nobody knows whether the store has heard of it.
        """
        if not receipt.rules:
            return True
        mark = Check(self._group, receipt.name, self._once, 1)
        asked = [_asked(one, amounts[one.id], rules) for one in receipt.rules]
        store = self._runner.store
        try:
            (outcome,) = await store.run(Take((mark,)))
        except StoreError as error:
            if not error.is_undone:
                raise
            return self._settle_here(receipt, asked, mark, error)
        if not outcome.allowed:
            return False
        checks = tuple([check for one in asked for check in one.checks if check.cost])
        try:
            if checks:
                await store.run(Charge(checks))
        except StoreError as error:
            self._record(receipt, asked, error)
        else:
            self._record(receipt, asked, None)
        return True

    def _settle_here(
        self, receipt: Receipt, asked: list[Asked], mark: Check, error: StoreError
    ) -> bool:
        fallback = self._runner.fallback
        (outcome,) = fallback.local.run(Take((mark,)))
        if not outcome.allowed:
            return False
        fallback.owe(Asked((mark,), OnFailure()), error)
        self._record(receipt, asked, error)
        return True

    def _record(self, receipt: Receipt, asked: list[Asked], error: StoreError | None) -> None:
        """Make the counters of this process right; with *error* the store will be told."""
        fallback = self._runner.fallback
        is_ours = receipt.name in self._granted
        self._granted.pop(receipt.name, None)
        for rule, one in zip(receipt.rules, asked, strict=True):
            amount = one.checks[0].cost
            if is_ours:
                fallback.correct(one, amount - rule.cost)
            elif error is not None:
                fallback.correct(one, amount)
            if error is not None and amount:
                fallback.owe(one, error)


def _asked(one: HeldRule, amount: int, rules: Rules) -> Asked:
    rule = rules(one.id)
    checks = tuple(one.checks(amount, one.limits_under(rule)))
    return Asked(checks, OnFailure() if rule is None else rule.on_failure)
