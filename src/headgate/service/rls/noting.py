"""What came of calls, noted in the journal of this process as the engine's own decisions are.

Only what asks for something is a decision; what looks, reports or gives back is none.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.observability import JOURNAL, Decided, Said
from headgate.observability.candidates import CANDIDATES
from headgate.service.rls.asking import has_passed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.decision import Decision
    from headgate.observability.candidates import Spoken
    from headgate.observability.journal import Outcome
    from headgate.policy.compiled import CompiledPolicy
    from headgate.service.core import Core
    from headgate.service.rls.descriptors import Asked, Part

begin: Final = perf_counter_ns
"""What the time that a decision took is counted from."""

_CLOSED: Final = "rule"
"""The source of what a limit of 0 says."""

Noted = tuple["Part", bool, "Decision | None"]
"""A part, whether it has let the call pass, and what came of it."""


class Noting:
    """Notes what is decided by the policy of *core*."""

    def __init__(self, core: Core) -> None:
        self._in_force = core.rules.in_force
        self._revision = self._before = 0
        self._since_ns = 0
        self._in_force.subscribe(self._put_in_force)

    def one(self, part: Part, decision: Decision, began_ns: int) -> None:
        """The only part of a call, that takes and decides, has come to *decision*."""
        journal = JOURNAL
        allowed = decision.allowed
        took_ns = perf_counter_ns() - began_ns
        journal.time(took_ns)
        journal.requests[allowed][0] += 1
        outcome: Outcome = "allowed" if allowed else "denied"
        journal.note(_name(part), outcome, decision.source, part.checks[0].key)
        if not allowed and part.name in CANDIDATES.beside:
            self._try([(part, allowed, decision)], began_ns, admitted=False)
        if journal.is_heard(refuses=not allowed):
            self._tell([(part, allowed, decision)], took_ns, allowed=allowed)

    def unlimited(self, asked: Asked, answer: bytes) -> Callable[[], bytes]:
        """What says *answer* to a call that nothing limits: a request all the same, unless it only
        reports."""
        if all(line.is_report for line in asked.lines):
            return lambda: answer
        admitted = JOURNAL.requests[True]

        def admit() -> bytes:
            admitted[0] += 1
            return answer

        return admit

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
        is_tried = refuses = False
        for part, allowed, decision in noted:
            source = _CLOSED if decision is None else decision.source
            key = part.checks[0].key if part.checks else ""
            journal.note(_name(part), _outcome(part, allowed=allowed), source, key)
            if not allowed:
                refuses = True
            if _is_shadow(part) or (not allowed and part.name in CANDIDATES.beside):
                is_tried = True
        if is_tried:
            self._try(noted, began_ns, admitted=passes)
        if journal.is_heard(refuses=refuses):
            self._tell(noted, took_ns, allowed=passes)

    def _put_in_force(self, engine: CompiledPolicy) -> None:
        self._before, self._revision = self._revision, engine.policy.revision
        self._since_ns = begin()

    def _try(self, noted: Sequence[Noted], began_ns: int, *, admitted: bool) -> None:
        """Count what rules in shadow would have done, as `engine.records` does."""
        if any(part.blocked_ns is not None and not _is_shadow(part) for part, _, _ in noted):
            return  # nobody was asked
        said: list[Spoken] = [
            (part.name, part.checks[0].key, _is_shadow(part), allowed, decision.source)
            for part, allowed, decision in noted
            if decision is not None and part.checks and part.rule is not None
        ]
        revision = self._before if began_ns < self._since_ns else self._revision
        CANDIDATES.hear(said, admitted=admitted, revision=revision)

    def _tell(self, noted: Iterable[Noted], took_ns: int, *, allowed: bool) -> None:
        rules = tuple([_said(*one) for one in noted])
        deciding = [one for one in rules if one.outcome in ("allowed", "denied")]
        binding = [one.source for one in deciding if one.outcome == "denied"] or [
            one.source for one in deciding if one.source != "store"
        ]
        source = binding[0] if binding else "store"
        JOURNAL.tell(Decided(allowed, source, self._in_force.policy.revision, took_ns, rules))


def _name(part: Part) -> str:
    """What *part* is counted under: the id of its rule, or what its configuration calls it."""
    return part.counted_as or part.name


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
        return Said(_name(part), outcome, _CLOSED, key, cost, 0, None)
    retry_ns = decision.retry_after_ns
    return Said(_name(part), outcome, decision.source, key, cost, decision.remaining, retry_ns)
