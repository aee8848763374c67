"""Reservations: an amount held now and settled when the actual cost is known.

A reservation is settled once. Settling it again returns 409, and after it has expired 410: then it
is unknown if it had been settled, and nothing is charged. The worker's clock decides between 409
and 410, but the store's clock ends the hold, so either may be returned near the end. After a 503
the outcome is unknown; the next attempt returns 409 if it was settled.

A reservation granted during an outage (by a rule that fails open) has no hold in the store; it is
charged when it is settled: see `OfflineReservations`. Cancelling returns the amount held. The
charges of rules that hold no amount for the request remain.

A place in a queue cannot be held. A reservation takes a place as a check does, at the cost that the
rule defines, and the answer says how long to wait.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.decision import OnFailure
from headgate.engine.use_cases import Calls
from headgate.errors import StoreError
from headgate.limits import LeakyQueue, TokenBucket
from headgate.runtime.drivers import adrive
from headgate.runtime.local_share import RuleChecks
from headgate.service.http.check_request import (
    COMMIT_FIELDS,
    RESERVATION_FIELDS,
    invalid,
    read_check,
    read_fields,
)
from headgate.service.http.receipts import Receipt, Receipts
from headgate.service.http.replies import (
    JSON_LINE,
    NO_STORE,
    RETRY_SOON,
    Flaw,
    RejectedError,
    Reply,
    json_reply,
    problem,
)
from headgate.stores.base import group_name
from headgate.stores.operations import Charge, Check, Take
from headgate.units import MILLISECOND, SECOND, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.policy.compiled import Costs
    from headgate.policy.model import Policy, Rule
    from headgate.runtime.effects import Effects
    from headgate.service.http.body import Document
    from headgate.service.http.check import Checker
    from headgate.service.http.receipts import HeldRule
    from headgate.service.http.replies import HttpOptions, Scope


# Reservations granted during an outage: the store has no hold for them.
#
# The id contains all charges, and the store is charged at settlement. A hold can be settled only
# once; a mark takes its place here: a counter with a limit of one, in the store or, during an
# outage, in this process, which later reports the mark and the charges to the store. So a
# reservation is charged once, except if two workers settle it during the same outage.


if TYPE_CHECKING:
    Rules = Callable[[str], Rule | None]
    """Finds a rule of the policy in force by id."""

MAX_GRANTED: Final = 10_000
"""Receipts of this process that are remembered because its fallback counters were charged."""


class OfflineReservations:
    """Settles reservations granted during an outage, which last at most *longest* seconds."""

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

        It continues if its caller is cancelled. Raises `StoreError` if the outcome is unknown.
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


_TOO_MUCH: Final = "too many rules hold an amount for this request: name the rules in cost"


class Reservations:
    """Makes, settles and cancels reservations. Keeps no state: see `receipts`."""

    def __init__(self, checker: Checker, options: HttpOptions) -> None:
        self._checker = checker
        self._core = checker.core
        self._longest = options.longest_hold
        self._receipts = Receipts(self._core.secret, self._core.namespace)
        self._offline = OfflineReservations(
            self._core.rules.engine, self._core.namespace, self._longest
        )
        self._rules: tuple[Policy | None, dict[str, Rule]] = None, {}

    async def reserve(self, document: Document, scope: Scope) -> Reply:
        """Hold what *document* asks for: 201 with an id, or a denial; *scope* is the request."""
        asked = read_check(document, RESERVATION_FIELDS, longest_ttl=self._longest)
        rules = self._core.rules
        cost = _without_queues(asked.cost, rules.in_force.policy)
        verdict = await self._checker.within_deadline(
            rules.reserve(asked.request, cost=cost, ttl=asked.ttl)
        )
        if not verdict.allowed:
            return self._checker.denial(verdict, scope)
        lasts_ns = min([duration_ns(asked.ttl, "ttl"), *_leases_ns(verdict)])
        expires_ns = self._core.clock() + lasts_ns
        expires_ns -= expires_ns % MILLISECOND
        receipt = Receipt.of(verdict, expires_ns)
        name = self._receipts.id_of(receipt)
        if name is None:
            await adrive(rules.engine.undo(verdict))
            raise RejectedError(problem(422, _TOO_MUCH))
        if not receipt.is_held:
            self._offline.granted(receipt)
        encoder = self._checker.encoder
        lines = encoder.lines(verdict)
        lines += [JSON_LINE, NO_STORE, (b"location", f"/v1/reservations/{name}".encode())]
        own = f'{{"id": "{name}", "expires": {expires_ns / SECOND!r}, '
        body = own + encoder.text(verdict).removeprefix("{")
        return self._checker.debugged(scope, verdict, 201, lines, body.encode("ascii"))

    async def commit(self, name: bytes, document: Document) -> Reply:
        """Charge the actual cost from *document*, or by default the amount held."""
        found, flaws = read_fields(document, COMMIT_FIELDS)
        if flaws:
            raise invalid(flaws)
        receipt = self._receipt(name)
        amounts = receipt.amounts(found.get("cost"), self._rule)
        await self._close(receipt, amounts)
        return json_reply({"charged": amounts})

    async def cancel(self, name: bytes) -> Reply:
        """Return the amount held."""
        receipt = self._receipt(name)
        await self._close(receipt, receipt.amounts(0, self._rule))
        return Reply(204, [], b"")

    def _receipt(self, name: bytes) -> Receipt:
        receipt = self._receipts.receipt_of(name)
        if receipt is None:
            raise RejectedError(problem(404, "no such reservation"))
        return receipt

    async def _close(self, receipt: Receipt, amounts: dict[str, int]) -> None:
        """Settle *receipt* once. Raises `RejectedError` if it was not open or the outcome is
        unknown."""
        try:
            settling = adrive(self._settling(receipt, amounts))
            was_open = await self._checker.within_deadline(settling)
        except StoreError as error:
            detail = f"the store failed ({error.reason}): try again"
            raise RejectedError(problem(503, detail, headers=(RETRY_SOON,))) from None
        if was_open:
            return
        if self._core.clock() < receipt.expires_ns:
            raise RejectedError(problem(409, "this reservation is already settled or cancelled"))
        raise RejectedError(problem(410, "this reservation has expired; nothing was charged"))

    def _settling(self, receipt: Receipt, amounts: dict[str, int]) -> Effects[bool]:
        """Settle *receipt* in the store; True if it was open."""
        if not receipt.is_held:
            if self._core.clock() >= receipt.expires_ns:
                return False
            return (yield from self._offline.settle(receipt, amounts, self._rule))
        engine = self._core.rules.engine
        calls = Calls(engine.store)
        settle = receipt.settle(amounts, self._rule)
        was_open = True if settle is None else (yield from calls.run(settle))
        if receipt.release is not None:
            engine.record_hold(receipt.release, receipt.since_ns)
            was_released = yield from calls.run(receipt.release)
            was_open &= was_released or settle is not None  # a slot may expire before the hold
        return was_open

    def _rule(self, name: str) -> Rule | None:
        """The rule *name* of the policy in force."""
        policy = self._core.rules.in_force.policy
        if self._rules[0] is not policy:
            self._rules = policy, {rule.id: rule for rule in policy.rules}
        return self._rules[1].get(name)


def _without_queues(cost: Costs, policy: Policy) -> Costs:
    """The *cost* that each rule of *policy* holds, without rules that have queues."""
    queues = {rule.id for rule in policy.rules if _is_queue(rule)}
    if not queues:
        return cost
    if isinstance(cost, int):
        return {rule.id: cost for rule in policy.rules if rule.id not in queues}
    flaws = [
        Flaw(f"cost.{name[:40]}", "a queue cannot hold an amount", "remove it")
        for name in cost or ()
        if name in queues
    ]
    if flaws:
        raise invalid(flaws)
    return cost


def _is_queue(rule: Rule) -> bool:
    return any(isinstance(limit, LeakyQueue) for row in rule.limits.values() for limit in row)


def _leases_ns(verdict: Verdict) -> list[int]:
    """The lease times of its slots if a reservation holds only slots: it lasts no longer."""
    if verdict.held is not None or verdict.slots is None:
        return []
    return [check.limit.period_ns for check in verdict.slots.checks]
