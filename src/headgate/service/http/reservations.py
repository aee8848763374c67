"""Reservations: an amount held now, and settled when the real one is known.

A reservation is settled once. Who settles it again hears 409; after it has lapsed, 410, whether it
had been settled or not: nobody can tell then, and nothing is charged. Which of the two goes by the
clock of the worker that answers, and the hold by the store's: near the end either may be said. Who
hears 503 does not know; the next try says 409 if it was settled after all.

What was granted while the store was gone (a rule that fails open) is held nowhere, and charged when
it is settled: see `unheld`. Cancelling gives back what is held; what other rules charged for the
request stays charged.

A turn in a queue cannot be held. A reservation takes one as a check does, at what the rule says
that a request costs, and the answer says how long to wait for it.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.decision import OnFailure
from headgate.errors import StoreError
from headgate.limits import LeakyQueue, TokenBucket
from headgate.runtime.drivers import adrive
from headgate.runtime.fallback import RuleChecks
from headgate.service.http.check_request import (
    TO_COMMIT,
    TO_RESERVE,
    invalid,
    read_asked,
    read_fields,
)
from headgate.service.http.receipts import Receipt, Receipts
from headgate.service.http.replies import (
    JSON_LINE,
    NO_STORE,
    Flaw,
    RefusedError,
    Reply,
    header_of,
    json_reply,
    problem,
)
from headgate.service.http.verdict_json import debugged, portrait
from headgate.stores.base import group_name
from headgate.stores.operations import Charge, Check, Take
from headgate.units import MILLISECOND, SECOND, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.policy.compiled import Costs
    from headgate.policy.model import Policy, Rule
    from headgate.service.http.body import Document
    from headgate.service.http.check import Checking
    from headgate.service.http.receipts import HeldRule
    from headgate.service.http.replies import HttpOptions, Scope


# Reservations that were granted while the store was gone: held nowhere, but settled all the same.
#
# The id has all that is to be charged, and the store is told when it is settled. Since it has no
# hold that could be settled once, it is given a mark: a counter with room for one, in the store or,
# while that is still gone, in this process, which tells the store of both afterwards. So nothing is
# charged twice, by whichever worker; but for two workers that settle it at the same time without a
# store.


if TYPE_CHECKING:
    Rules = Callable[[str], Rule | None]
    """From the id of a rule to that of the policy in force."""

MOST_KNOWN: Final = 10_000
"""Of how many it is known that they were granted, and charged by an estimate, in this process."""


class Unheld:
    """Settles them by *engine*. None of them lasts longer than *longest* seconds."""

    def __init__(self, engine: Engine, namespace: str, longest: float) -> None:
        self._engine = engine
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
        store = self._engine.store
        try:
            (outcome,) = await store.arun(Take((mark,)))
        except StoreError as error:
            if not error.is_undone:
                raise
            return self._settle_here(receipt, asked, mark, error)
        if not outcome.allowed:
            return False
        checks = tuple([check for one in asked for check in one.checks if check.cost])
        try:
            if checks:
                await store.arun(Charge(checks))
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
        """Make the counters of this process right; with *error* the store will be told."""
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


def _asked(one: HeldRule, amount: int, rules: Rules) -> RuleChecks:
    rule = rules(one.id)
    checks = tuple(one.checks(amount, one.limits_under(rule)))
    return RuleChecks(checks, OnFailure() if rule is None else rule.on_failure)


_RETRY_SOON: Final = (b"retry-after", b"1")
_TOO_MUCH: Final = "too many rules hold something for this request: name those in cost that should"


class Reservations:
    """Makes, settles and cancels them. It keeps nothing: see `receipts`."""

    def __init__(self, checking: Checking, options: HttpOptions) -> None:
        self._checking = checking
        self._core = checking.core
        self._longest = options.longest_hold
        self._receipts = Receipts(self._core.secret, self._core.namespace)
        self._unheld = Unheld(self._core.rules.engine, self._core.namespace, self._longest)
        self._rules: tuple[Policy | None, dict[str, Rule]] = None, {}

    async def reserve(self, document: Document, scope: Scope) -> Reply:
        """Hold what *document* asks for: 201 with an id, or a refusal; *scope* is of who asks."""
        asked = read_asked(document, TO_RESERVE, longest_ttl=self._longest)
        rules = self._core.rules
        cost = _without_queues(asked.cost, rules.in_force.policy)
        verdict = await self._checking.within_deadline(
            rules.reserve(asked.request, cost=cost, ttl=asked.ttl)
        )
        if not verdict.allowed:
            denied = self._checking.denial(verdict, header_of(scope, b"accept"))
            return debugged(self._core, scope, verdict, denied)
        lasts_ns = min([duration_ns(asked.ttl, "ttl"), *_leases_ns(verdict)])
        expires_ns = self._core.clock() + lasts_ns
        expires_ns -= expires_ns % MILLISECOND
        receipt = Receipt.of(verdict, expires_ns)
        name = self._receipts.id_of(receipt)
        if name is None:
            await adrive(rules.engine.undo(verdict))
            raise RefusedError(problem(422, _TOO_MUCH))
        if not receipt.is_held:
            self._unheld.granted(receipt)
        lines = self._checking.teller.lines(verdict)
        lines += [JSON_LINE, NO_STORE, (b"location", f"/v1/reservations/{name}".encode())]
        content = {"id": name, "expires": expires_ns / SECOND, **portrait(verdict)}
        made = Reply(201, lines, json.dumps(content).encode("ascii"))
        return debugged(self._core, scope, verdict, made)

    async def commit(self, name: bytes, document: Document) -> Reply:
        """Charge what it really cost: *document* says so, or what was held."""
        found, flaws = read_fields(document, TO_COMMIT)
        if flaws:
            raise invalid(flaws)
        receipt = self._receipt(name)
        amounts = receipt.amounts(found.get("cost"), self._rule)
        await self._close(receipt, amounts)
        return json_reply({"charged": amounts})

    async def cancel(self, name: bytes) -> Reply:
        """Give back what is held."""
        receipt = self._receipt(name)
        await self._close(receipt, receipt.amounts(0, self._rule))
        return Reply(204, [], b"")

    def _receipt(self, name: bytes) -> Receipt:
        receipt = self._receipts.receipt_of(name)
        if receipt is None:
            raise RefusedError(problem(404, "no such reservation"))
        return receipt

    async def _close(self, receipt: Receipt, amounts: dict[str, int]) -> None:
        """Settle *receipt*, once. Raises `RefusedError` if it was not open, or nobody knows."""
        try:
            was_open = await self._checking.within_deadline(self._settled(receipt, amounts))
        except StoreError as error:
            detail = f"the store could not be told ({error.reason}): try again"
            raise RefusedError(problem(503, detail, headers=(_RETRY_SOON,))) from None
        if was_open:
            return
        if self._core.clock() < receipt.expires_ns:
            raise RefusedError(problem(409, "this reservation was settled or cancelled already"))
        raise RefusedError(problem(410, "this reservation has lapsed, and nothing was charged"))

    async def _settled(self, receipt: Receipt, amounts: dict[str, int]) -> bool:
        """Tell the store; whether all was held still."""
        if not receipt.is_held:
            is_in_time = self._core.clock() < receipt.expires_ns
            return is_in_time and await self._unheld.settle(receipt, amounts, self._rule)
        engine = self._core.rules.engine
        store = engine.store
        settle = receipt.settle(amounts, self._rule)
        was_open = True if settle is None else await store.arun(settle)
        if receipt.leave is not None:
            engine.record_hold(receipt.leave, receipt.since_ns)
            has_left = await store.arun(receipt.leave)
            was_open &= has_left or settle is not None  # a lease may end before the hold does
        return was_open

    def _rule(self, name: str) -> Rule | None:
        """The rule *name* of the policy in force."""
        policy = self._core.rules.in_force.policy
        if self._rules[0] is not policy:
            self._rules = policy, {rule.id: rule for rule in policy.rules}
        return self._rules[1].get(name)


def _without_queues(cost: Costs, policy: Policy) -> Costs:
    """What each rule of *policy* is to hold: *cost*, but for those in which there are queues."""
    queues = {rule.id for rule in policy.rules if _is_queue(rule)}
    if not queues:
        return cost
    if isinstance(cost, int):
        return {rule.id: cost for rule in policy.rules if rule.id not in queues}
    flaws = [
        Flaw(f"cost.{name[:40]}", "it is a queue, in which nothing is held", "leave it out")
        for name in cost or ()
        if name in queues
    ]
    if flaws:
        raise invalid(flaws)
    return cost


def _is_queue(rule: Rule) -> bool:
    return any(isinstance(limit, LeakyQueue) for row in rule.limits.values() for limit in row)


def _leases_ns(verdict: Verdict) -> list[int]:
    """How long places last that are all a reservation has; longer than they do, it does not."""
    if verdict.held is not None or verdict.slots is None:
        return []
    return [check.limit.period_ns for check in verdict.slots.checks]
