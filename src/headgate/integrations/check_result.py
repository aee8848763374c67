"""`CheckResult`: what a request holds by a check, and what it is charged at its end.

A hold is settled by the report of the app or by the response. Rules with `cost: {after: ...}` are
charged when the response has ended: what the app has reported under their id, else a header of the
response, else the bytes of its body. A response never fails because such a charge is lost: it is
counted and logged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.engine.holds import allowing
from headgate.policy.conditions import cost_after, cost_in_response
from headgate.policy.problems import quoted
from headgate.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.clock import Clock
    from headgate.engine.holds import ExtraCosts
    from headgate.engine.plan import CompiledRule, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.integrations.request_limiter import RequestLimiter, RequestPlan
    from headgate.llm.call import ModelCall
    from headgate.overload import Place
    from headgate.runtime.heartbeat import Beat

LOG: Final = logging.getLogger("headgate.integrations")

BUSY: Final = frozenset({502, 503, 504})
"""The status codes of a lack of capacity further on."""

SWITCHED: Final = 101
"""The status of an accepted websocket."""

EVERY_NS: Final = MINUTE
"""The time between two warnings about lost charges."""


@dataclass(frozen=True, slots=True)
class CompletedResponse:
    """A response that has ended. *error*: the exception in place of a response, with status 500.

    *headers* are lines in their order; `header` finds one by its name in lower case.
    """

    status_code: int
    headers: tuple[tuple[str, str], ...] = ()
    error: BaseException | None = None

    @property
    def lacks_capacity(self) -> bool:
        """True if it failed because something further on was too busy, or took too long."""
        return self.status_code in BUSY or isinstance(self.error, TimeoutError)

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        return next((value for other, value in self.headers if other.lower() == name), None)

    def header_lines(self, name: str) -> list[str]:
        """The values of all lines of the header *name* (in lower case), in their order."""
        return [value for other, value in self.headers if other.lower() == name]


@dataclass(slots=True)
class CheckResult:
    """A check that allowed the request, and what the request holds by it."""

    limiter: RequestLimiter
    planned: RequestPlan
    verdict: Verdict
    places: tuple[Place, ...] = ()
    """The places in fair queues."""
    began_ns: int | None = None
    """The time of the start, if the time of the request is measured."""
    beat: Beat | None = None
    """The heartbeat of its slots."""

    @property
    def needs_store(self) -> bool:
        """True if the store has to be called at the end of the request."""
        verdict = self.verdict
        if verdict.held is not None or verdict.slots is not None or self.planned.after:
            return True
        return verdict.local_slots is not None

    @property
    def has_end(self) -> bool:
        """True if there is anything to do at the end of the request."""
        return self.needs_store or bool(self.places) or self.began_ns is not None

    @property
    def is_open(self) -> bool:
        """True if something is held that has yet to be settled."""
        held = self.verdict.held
        return held is not None and not held.once.is_done

    def end(self, response: CompletedResponse, *, is_denial: bool) -> None:
        """Do what needs no store: give places up, stop the heartbeat, record the time.

        A denial further in says nothing about the app, nor does the time that a websocket was open.
        """
        status = response.status_code
        for place in self.places:
            if is_denial:
                place.cancel()
            else:
                place.is_timed = status != SWITCHED
                place.release(succeeded=not response.lacks_capacity)
        if self.beat is not None:
            self.beat.stop()
        if self.began_ns is not None and not is_denial and status != SWITCHED:
            pressure = self.limiter.pressure
            if pressure is not None:
                pressure.record(self.began_ns, failed=status >= 500)

    def amounts(
        self, response: CompletedResponse, used: Mapping[str, int], call: ModelCall | None = None
    ) -> dict[str, int]:
        """The amount that each rule is settled for: by the report of the app, or by the response.
        For a rule that is not in it, the held amount is charged. *call* is what the response is
        read for."""
        found = {}
        for one in () if self.verdict.held is None else self.verdict.held.rules:
            rule = one.rule.id
            counts = self.planned.charge_when.get(rule)
            if counts is not None and not counts(response):
                found[rule] = 0
            elif rule in used:
                found[rule] = used[rule]
            elif call is not None and one.rule.final_cost is not None:
                status = response.status_code
                found[rule] = call.cost(one.rule.final_cost, one.cost, status)
        return found

    def late_charges(
        self, response: CompletedResponse, used: Mapping[str, int], sent: int
    ) -> ExtraCosts:
        """The amounts that rules with `cost: {after: ...}` charge at the end of the response.

        *used* is the report of the app, *sent* the number of bytes of the body.
        """
        found = []
        for one in allowing(self.planned.after, self.verdict):
            cost = self._late_cost(one, response, used, sent)
            if cost is not None and cost > one.cost:
                found.append((one, cost - one.cost))
        return found

    def _late_cost(
        self, one: RulePlan, response: CompletedResponse, used: Mapping[str, int], sent: int
    ) -> int | None:
        """The cost of the request under a rule; None if it is unknown."""
        after = one.rule.declared.cost.after
        reported = used.get(one.rule.id)
        if reported is not None:
            return cost_after(after, reported)
        if after.header is None:
            return cost_after(after, sent)
        lines = response.header_lines(after.header)
        cost = cost_in_response(after, lines)
        is_success = response.status_code < 400 and response.error is None
        if cost is None and (lines or is_success):  # an error need not have it
            self.limiter.late_charges.warn_missing(one.rule, after.header, lines)
        return cost


class LateCharges:
    """The late charges that an app has lost.

    Threads may share it: at worst two of them log the same.
    """

    __slots__ = ("_clock", "_quiet_until_ns", "_warned", "lost")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ns: int | None = None
        self._warned: set[str] = set()
        self.lost = 0
        """The charges under a rule that did not reach the store."""

    def record_lost(self, left: ExtraCosts) -> None:
        """Count charges that did not reach the store, and log that now and then."""
        if not left:
            return
        self.lost += len(left)
        now = self._clock()
        if self._quiet_until_ns is None or now >= self._quiet_until_ns:
            self._quiet_until_ns = now + EVERY_NS
            rules = ", ".join(sorted({one.rule.id for one, _ in left}))
            text = "the store is gone: what requests had cost was not charged (%s); %d so far"
            LOG.warning(text, rules, self.lost)

    def warn_missing(self, rule: CompiledRule, header: str, lines: list[str]) -> None:
        """Log, once for each rule, that a response does not say its cost."""
        if rule.id in self._warned:
            return
        self._warned.add(rule.id)
        found = "nothing" if not lines else "several lines" if lines[1:] else quoted(lines[0])
        text = "rule %s: a response has %s in the header %s, so nothing was charged afterwards; %s"
        LOG.warning(text, rule.id, found, header, "expected one whole number")
