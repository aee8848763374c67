"""Reservations: an amount held now and settled when the actual cost is known.

A reservation is settled once. Settling it again returns 409, and after it has expired 410: then it
is unknown if it had been settled, and nothing is charged. The worker's clock decides between 409
and 410, but the store's clock ends the hold, so either may be returned near the end. After a 503
the outcome is unknown; the next attempt returns 409 if it was settled.

A reservation granted during an outage (by a rule that fails open) has no hold in the store; it is
charged when it is settled: see `settlement`. Cancelling returns the amount held. The
charges of rules that hold no amount for the request remain.

A place in a queue cannot be held. A reservation takes a place as a check does, at the cost that the
rule defines, and the answer says how long to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.limits import LeakyQueue
from headgate.runtime.drivers import adrive
from headgate.service.http.check_request import (
    COMMIT_FIELDS,
    RESERVATION_FIELDS,
    invalid,
    read_check,
    read_fields,
)
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
from headgate.service.receipts import Receipt, Receipts
from headgate.service.settlement import Settlements
from headgate.units import MILLISECOND, SECOND, duration_ns

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict
    from headgate.policy.compiled import Costs
    from headgate.policy.model import Policy, Rule
    from headgate.service.http.body import Document
    from headgate.service.http.check import Checker
    from headgate.service.http.replies import HttpOptions, Scope


_TOO_MUCH: Final = "too many rules hold an amount for this request: name the rules in cost"


class Reservations:
    """Makes, settles and cancels reservations. Keeps no state: see `receipts`."""

    def __init__(self, checker: Checker, options: HttpOptions) -> None:
        self._checker = checker
        self._core = checker.core
        self._longest = options.longest_hold
        self._receipts = Receipts(self._core.secret, self._core.namespace)
        self._settlements = Settlements(self._core, self._longest)

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
        self._settlements.granted(receipt)
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
        amounts = receipt.amounts(found.get("cost"), self._settlements.rule)
        await self._close(receipt, amounts)
        return json_reply({"charged": amounts})

    async def cancel(self, name: bytes) -> Reply:
        """Return the amount held."""
        receipt = self._receipt(name)
        await self._close(receipt, receipt.amounts(0, self._settlements.rule))
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
            settling = adrive(self._settlements.settle(receipt, amounts))
            was_open = await self._checker.within_deadline(settling)
        except StoreError as error:
            detail = f"the store failed ({error.reason}): try again"
            raise RejectedError(problem(503, detail, headers=(RETRY_SOON,))) from None
        if was_open:
            return
        if self._core.clock() < receipt.expires_ns:
            raise RejectedError(problem(409, "this reservation is already settled or cancelled"))
        raise RejectedError(problem(410, "this reservation has expired; nothing was charged"))


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
