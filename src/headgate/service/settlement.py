"""Settle reservations: charge what a request really cost, and release its slots.

The id of a reservation has everything that is needed (see `receipts`), so any worker can do it. A
reservation is settled once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.decision import OnFailure
from headgate.engine.use_cases import Calls
from headgate.errors import StoreError
from headgate.limits import TokenBucket
from headgate.runtime.local_share import RuleChecks
from headgate.stores.base import group_name
from headgate.stores.operations import Charge, Check, Take

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.engine.use_cases import Engine
    from headgate.policy.model import Policy, Rule
    from headgate.runtime.effects import Effects
    from headgate.service.core import Core
    from headgate.service.receipts import HeldRule, Receipt


class Settlements:
    """Settles reservations with the rules and the store of *core*. Those that were granted during
    an outage last no longer than *longest* seconds."""

    def __init__(self, core: Core, longest: float) -> None:
        self._core = core
        self._offline = OfflineReservations(core.rules.engine, core.namespace, longest)
        self._rules: tuple[Policy | None, dict[str, Rule]] = None, {}

    def granted(self, receipt: Receipt) -> None:
        """Record that this process granted *receipt*."""
        if not receipt.is_held:
            self._offline.granted(receipt)

    def settle(self, receipt: Receipt, amounts: Mapping[str, int]) -> Effects[bool]:
        """Settle *receipt* in the store; true if everything was still held."""
        engine = self._core.rules.engine
        release = receipt.release
        if release is not None:
            engine.record_hold(release, receipt.since_ns)
        if not receipt.is_held:
            if release is not None:  # of this process, if it granted them
                engine.fallback.local.run(release)
            if self._core.clock() >= receipt.expires_ns:
                return False
            return (yield from self._offline.settle(receipt, amounts, self.rule))
        calls = Calls(engine.store)
        settle = receipt.settle(amounts, self.rule)
        was_open = True if settle is None else (yield from calls.run(settle))
        if release is not None:
            was_released = yield from calls.run(release)
            was_open &= was_released or settle is not None  # a lease may end before the hold does
        return was_open

    def rule(self, name: str) -> Rule | None:
        """The rule *name* of the policy in force."""
        policy = self._core.rules.in_force.policy
        if self._rules[0] is not policy:
            self._rules = policy, {rule.id: rule for rule in policy.rules}
        return self._rules[1].get(name)


# Reservations granted during an outage: held nowhere, but settled.
#
# The id contains everything to charge, and the store is charged at settlement. Without a hold that
# can be settled only once, a mark takes its place: a counter with room for one, in the store or,
# while that is down, in this process, which reports both later. So nothing is charged twice by any
# worker, except if two workers settle it at the same time during an outage.


if TYPE_CHECKING:
    Rules = Callable[[str], Rule | None]
    """Finds a rule of the policy in force by id."""

MAX_GRANTED: Final = 10_000
"""Grants of this process that are remembered: they were charged to its fallback counters."""


class OfflineReservations:
    """Settles them with *engine*. None lasts longer than *longest* seconds."""

    def __init__(self, engine: Engine, namespace: str, longest: float) -> None:
        self._engine = engine
        self._group = group_name(namespace, "reservation!settled")
        self._once = TokenBucket(1, Fraction(1, 2 * (int(longest) + 1)))
        self._granted: dict[str, None] = {}

    def granted(self, receipt: Receipt) -> None:
        """Record that this process granted *receipt* and charged its fallback counters."""
        if len(self._granted) >= MAX_GRANTED:
            self._granted.pop(next(iter(self._granted)))
        self._granted[receipt.name] = None

    def settle(self, receipt: Receipt, amounts: Mapping[str, int], rules: Rules) -> Effects[bool]:
        """Charge each rule its amount; False if that was done before.

        A caller that is cancelled does not end it. Raises `StoreError` if the outcome is unknown.
        """
        if not receipt.rules:
            return True
        mark = Check(self._group, receipt.name, self._once, 1)
        asked = [_rule_checks(one, amounts[one.id], rules) for one in receipt.rules]
        calls = Calls(self._engine.store)
        try:
            (outcome,) = yield from calls.run(Take((mark,)))
        except StoreError as error:
            if not error.is_undone:
                raise
            return self._settle_here(receipt, asked, mark, error)
        if not outcome.allowed:
            return False
        checks = tuple([check for one in asked for check in one.checks if check.cost])
        try:
            if checks:
                yield from calls.run(Charge(checks))
        except StoreError as error:
            self._record(receipt, asked, error)
        else:
            self._record(receipt, asked, None)
        return True

    def _settle_here(
        self, receipt: Receipt, asked: list[RuleChecks], mark: Check, error: StoreError
    ) -> bool:
        fallback = self._engine.fallback
        (outcome,) = fallback.local.run(Take((mark,)))
        if not outcome.allowed:
            return False
        fallback.report_later(RuleChecks((mark,), OnFailure()), error)
        self._record(receipt, asked, error)
        return True

    def _record(self, receipt: Receipt, asked: list[RuleChecks], error: StoreError | None) -> None:
        """Correct the fallback counters; with *error*, report the usage to the store later."""
        fallback = self._engine.fallback
        is_ours = receipt.name in self._granted
        self._granted.pop(receipt.name, None)
        for rule, one in zip(receipt.rules, asked, strict=True):
            amount = one.checks[0].cost
            if is_ours:
                fallback.correct(one, amount - rule.cost)
            elif error is not None:
                fallback.correct(one, amount)
            if error is not None and amount:
                fallback.report_later(one, error)


def _rule_checks(one: HeldRule, amount: int, rules: Rules) -> RuleChecks:
    rule = rules(one.id)
    checks = tuple(one.checks(amount, one.limits_under(rule)))
    return RuleChecks(checks, OnFailure() if rule is None else rule.on_failure)
