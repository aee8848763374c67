"""From what is to be asked to what was said, in one round trip wherever that is enough. No I/O.

The parts that decide are one take, all or nothing, whatever descriptors they belong to; shadows are
takes of their own beside it; what is reported or given back is recorded beside that. A part that is
closed or blocked denies the call, and all others are then only looked at.

Two round trips are needed where something has to be known before anything may be charged:

- a call that only looks at some limits, or reports, and charges others: what is looked at, or used
  up by the report, must not deny after the others have been charged;
- quotas, of which one that has room is enough: only those that have are charged;
- what is reported to a rule in shadow. The request was let through though the rule may have been
  against it, and then would have cost nothing: if nothing is left there, nothing is recorded.
  Otherwise its debt would grow without end, and be there on the day that the rule is enforced.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from headgate.decisions import Concluded, Decision, decide_blocked
from headgate.service.rls.outage import error_in
from headgate.service.rls.steps import Bundle, Step
from headgate.stores.operations import Check, Operation, Take, TakeEach

if TYPE_CHECKING:
    from headgate.service.rls.asked import Asked, Part
    from headgate.service.rls.outage import Outage
    from headgate.service.rls.steps import Places, Said

Rounds = Generator[Sequence[Operation[Any]], Sequence[Any], None]
"""Yields operations to be run at once, and is sent their replies, or a `StoreError` in place of
one."""


class Question:
    """What is *asked*, and how; it may be asked again and again."""

    __slots__ = ("_first", "_operations", "_plan", "asked")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._plan = _Plan(asked.parts)
        is_each_alone = asked.charge == "always"
        self._first = self._plan.each_alone() if is_each_alone else self._plan.first()
        self._operations = self._first.operations(asked.parts)

    def rounds(self, said: Said, outage: Outage) -> Rounds:
        """Ask, and note in *said*, which is empty, what came of each part.

        *outage* decides for the parts that the store says nothing to.
        """
        parts, plan = self.asked.parts, self._plan
        said += [_blocked(part) for part in parts]
        silent: Places = ()
        if self._operations:
            replies = yield self._operations
            silent = self._first.hear(parts, replies, said)
            if silent:
                outage.decide(parts, silent, said, error_in(replies), is_open=not plan.is_refused)
            else:
                outage.hear()
        if plan.trials:
            yield from _record_trials(parts, plan.trials, said, silent)
        if self.asked.charge == "always":
            yield from _fill_up(parts, plan.takers, said)
        elif plan.has_more_to_know and not plan.is_refused:
            yield from _take_what_fits(parts, plan, said, outage, silent)


class _Plan:
    """The *parts* of a call by what is wanted of them."""

    def __init__(self, parts: Sequence[Part]) -> None:
        asked = [n for n, part in enumerate(parts) if not part.is_refused]
        reports = [n for n in asked if parts[n].verb == "report"]
        self.reports = tuple([n for n in reports if parts[n].role != "hidden"])
        self.trials = tuple([n for n in reports if parts[n].role == "hidden"])
        self.refunds = tuple([n for n in asked if parts[n].verb == "refund"])
        self.looks = tuple([n for n in asked if parts[n].verb == "look"])
        self.takers = tuple([n for n in asked if parts[n].verb == "take"])
        self.takes = tuple([n for n in self.takers if parts[n].role == "decides"])
        self.quotas = tuple([n for n in self.takers if parts[n].role == "quota"])
        self.shadows = tuple([n for n in self.takers if not _has_a_say(parts[n])])
        self.is_refused = any(
            part.is_refused and part.is_question and part.role == "decides" for part in parts
        )

    @property
    def has_more_to_know(self) -> bool:
        """Whether something is to be known before anything may be charged."""
        return bool(self.looks or self.quotas or (self.reports and self.takes))

    def first(self) -> Step:
        """What to ask first; all there is to ask in most calls."""
        consume = not self.is_refused
        takes = [Bundle((n,), consume=False) for n in (*self.looks, *self.quotas, *self.trials)]
        takes += [Bundle((n,), consume=consume) for n in self.shadows]
        if self.takes:
            takes.append(Bundle(self.takes, consume=consume and not self.has_more_to_know))
        return Step(tuple(takes), self.reports, self.refunds)

    def each_alone(self) -> Step:
        """The same where each part is charged whatever the others say."""
        takes = [Bundle((n,), consume=True) for n in self.takers]
        takes += [Bundle((n,), consume=False) for n in self.looks]
        return Step(tuple(takes), self.reports, self.refunds)


def is_passing(parts: Sequence[Part], said: Said) -> bool:
    """Whether a call passes: nothing that decides says no, and not all of its quotas do."""
    quotas = passed = 0
    for part, decision in zip(parts, said, strict=True):
        if part.role == "quota":
            quotas += 1
            passed += has_passed(part, decision)
        elif part.role == "decides" and not has_passed(part, decision):
            return False
    return passed > 0 or not quotas


def has_passed(part: Part, decision: Decision | None) -> bool:
    """Whether *part*, of which *decision* came, does not say no."""
    if part.closed is not None:
        return part.verb == "refund"
    return decision is None or decision.allowed


def _has_a_say(part: Part) -> bool:
    return part.role in ("decides", "quota")


def _blocked(part: Part) -> Decision | None:
    if part.blocked_ns is None or part.closed is not None or not part.is_question:
        return None
    return decide_blocked(part.blocked_ns, [(check.key, check.limit) for check in part.checks])


def _record_trials(parts: Sequence[Part], trials: Places, said: Said, decided: Places) -> Rounds:
    """Record what is reported to rules in shadow, as far as they have something left and were not
    *decided* without the store."""
    asked = [(n, said[n]) for n in trials if n not in decided]
    places = tuple([n for n, decision in asked if decision is not None and decision.remaining])
    if places:
        step = Step(reports=places)
        step.hear(parts, (yield step.operations(parts)), said)


def _take_what_fits(
    parts: Sequence[Part], plan: _Plan, said: Said, outage: Outage, decided: Places
) -> Rounds:
    """Charge, now that it is known that the call passes, all but what was *decided* without the
    store.

    Should a quota be used up meanwhile, the others are asked again without it.
    """
    takes = [n for n in plan.takes if n not in decided]
    quotas = [n for n in plan.quotas if n not in decided]
    while is_passing(parts, said):
        fitting = [n for n in quotas if has_passed(parts[n], said[n])]
        places = (*takes, *fitting)
        if not places:
            return
        step = Step((Bundle(places, consume=True),))
        replies = yield step.operations(parts)
        silent = step.hear(parts, replies, said)
        if silent:
            outage.decide(parts, silent, said, error_in(replies))
            return
        if all(has_passed(parts[n], said[n]) for n in places):
            return


def _fill_up(parts: Sequence[Part], takers: Places, said: Said) -> Rounds:
    """Charge those that were denied what was left, as if they had been counted in full."""
    takes = []
    for place in takers:
        decision = said[place]
        if decision is None or decision.allowed or decision.source != "store":
            continue
        if decision.remaining:
            (check,) = parts[place].checks
            rest = Check(check.group, check.key, check.limit, decision.remaining)
            takes.append(Take((rest,)))
        said[place] = Concluded(
            decision.key,
            decision.limit,
            allowed=False,
            remaining=0,
            retry_after_ns=decision.retry_after_ns,
            reset_after_ns=decision.reset_after_ns,
        )
    if takes:
        yield [TakeEach(tuple(takes))]
