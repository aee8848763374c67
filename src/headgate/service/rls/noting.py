"""What came of calls, noted in the journal of this process as the engine's own decisions are.

Only what asks for something is a decision; what looks, reports or gives back is none.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.observability import JOURNAL, Decided, Said
from headgate.observability.candidates import CANDIDATES, Heard
from headgate.service.rls.asking import has_passed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.decisions import Decision
    from headgate.observability.journal import Outcome
    from headgate.service.core import Core
    from headgate.service.rls.asked import Part

begin: Final = perf_counter_ns
"""What the time that a decision took is counted from."""

_CLOSED: Final = "rule"
"""The source of what a limit of 0 says."""

Noted = tuple["Part", bool, "Decision | None"]
"""A part, whether it has let the call pass, and what came of it."""


class Noting:
    """Notes what is decided by the policy of *core*."""

    def __init__(self, core: Core) -> None:
        self._in_force = core.engine.in_force

    def one(self, part: Part, decision: Decision, began_ns: int) -> None:
        """The only part of a call, that takes and decides, has come to *decision*."""
        journal = JOURNAL
        allowed = decision.allowed
        took_ns = perf_counter_ns() - began_ns
        journal.time(took_ns)
        journal.requests[allowed][0] += 1
        outcome: Outcome = "allowed" if allowed else "denied"
        journal.note(part.name, outcome, decision.source, part.checks[0].key)
        if not allowed and part.name in CANDIDATES.beside:
            self._try([(part, allowed, decision)], admitted=False)
        if journal.listeners:
            self._tell([(part, allowed, decision)], took_ns, allowed=allowed)

    def all(
        self, parts: Sequence[Part], said: Sequence[Decision | None], began_ns: int, *, passes: bool
    ) -> None:
        """A call of *parts* has come to *said*."""
        took = [
            (part, has_passed(part, decision), decision)
            for part, decision in zip(parts, said, strict=True)
            if part.verb == "take"
        ]
        self.each(took, began_ns, passes=passes)

    def each(self, noted: Sequence[Noted], began_ns: int, *, passes: bool) -> None:
        """The same, from what came of each of its parts that takes."""
        if not noted:
            return
        journal = JOURNAL
        took_ns = perf_counter_ns() - began_ns
        journal.time(took_ns)
        journal.requests[passes][0] += 1
        is_tried = False
        for part, allowed, decision in noted:
            source = _CLOSED if decision is None else decision.source
            key = part.checks[0].key if part.checks else ""
            journal.note(part.name, _outcome(part, allowed=allowed), source, key)
            if _is_shadow(part) or (not allowed and part.name in CANDIDATES.beside):
                is_tried = True
        if is_tried:
            self._try(noted, admitted=passes)
        if journal.listeners:
            self._tell(noted, took_ns, allowed=passes)

    def _try(self, noted: Iterable[Noted], *, admitted: bool) -> None:
        """Count what rules in shadow would have done."""
        heard = [
            Heard(part.name, part.checks[0].key, _is_shadow(part), allowed, decision.source)
            for part, allowed, decision in noted
            if decision is not None and part.checks and part.rule is not None
        ]
        CANDIDATES.hear(heard, admitted=admitted, revision=self._in_force.policy.revision)

    def _tell(self, noted: Iterable[Noted], took_ns: int, *, allowed: bool) -> None:
        rules = tuple([_said(*one) for one in noted])
        deciding = [one for one in rules if one.outcome in ("allowed", "denied")]
        binding = [one.source for one in deciding if one.outcome == "denied"] or [
            one.source for one in deciding if one.source != "store"
        ]
        source = binding[0] if binding else "store"
        told = Decided(allowed, source, self._in_force.policy.revision, took_ns, rules)
        for listener in JOURNAL.listeners:
            listener(told)


def _is_shadow(part: Part) -> bool:
    return part.role in ("shadow", "hidden")


def _outcome(part: Part, *, allowed: bool) -> Outcome:
    if _is_shadow(part):
        return "shadow_allowed" if allowed else "shadow_denied"
    return "allowed" if allowed else "denied"


def _said(part: Part, allowed: bool, decision: Decision | None) -> Said:  # noqa: FBT001 (a `Noted`)
    cost = part.checks[0].cost if part.checks else 0
    key = part.checks[0].key if part.checks else ""
    outcome = _outcome(part, allowed=allowed)
    if decision is None:
        return Said(part.name, outcome, _CLOSED, key, cost, 0, None)
    retry_ns = decision.retry_after_ns
    return Said(part.name, outcome, decision.source, key, cost, decision.remaining, retry_ns)
