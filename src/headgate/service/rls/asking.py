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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from headgate.algorithms import Outcome
from headgate.decision import Decision, FailurePolicy, OnFailure, combine, decide_blocked
from headgate.errors import StoreError
from headgate.limits import SlidingWindowCounter
from headgate.runtime.fallback import Asked as Unanswered
from headgate.service.grpc.method import CallError, Code
from headgate.stores.base import conclude, concluded
from headgate.stores.operations import Charge, Check, Operation, Refund, Take, TakeEach
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.runtime.fallback import Fallback
    from headgate.service.rls.descriptors import Asked, Part
    from headgate.stores.operations import Outcomes


# What is asked of the store at once, and what each part hears of the reply. No I/O.


Said = list["Decision | None"]
"""What came of each part; None for those that are closed, or have not been asked."""

Places = tuple[int, ...]
"""Parts, by their places among all."""


class Bundle(NamedTuple):
    """Parts that are taken together, all or none; or only looked at."""

    places: Places
    consume: bool


class Step(NamedTuple):
    """What is asked in one round trip."""

    takes: tuple[Bundle, ...] = ()
    reports: Places = ()
    refunds: Places = ()

    def operations(self, parts: Sequence[Part]) -> list[Operation[Any]]:
        """What the store is to do; they have nothing to do with each other."""
        asked: list[Operation[Any]] = []
        if self.takes:
            takes = [Take(_checks(parts, one.places), consume=one.consume) for one in self.takes]
            asked.append(TakeEach(tuple(takes)))
        if self.reports:
            asked.append(Charge(_checks(parts, self.reports)))
        if self.refunds:
            asked.append(Refund(_checks(parts, self.refunds)))
        return asked

    def hear(
        self, parts: Sequence[Part], replies: Sequence[Any], said: Said, source: str = "store"
    ) -> Places:
        """Note in *said* what the *replies* to the operations are; the parts that heard nothing.

        *source* is who replied.
        """
        left = list(replies)
        silent: list[int] = []
        if self.takes:
            reply = left.pop(0)
            each = [reply] * len(self.takes) if isinstance(reply, StoreError) else reply
            for bundle, outcomes in zip(self.takes, each, strict=True):
                if isinstance(outcomes, StoreError):
                    silent += bundle.places
                else:
                    _note(parts, bundle.places, outcomes, said, source)
        for places in (self.reports, self.refunds):
            if places:
                reply = left.pop(0)
                if isinstance(reply, StoreError):
                    silent += places
                else:
                    _note(parts, places, reply, said, source)
        return tuple(silent)


def decision_of(part: Part, outcomes: Outcomes, source: str) -> Decision:
    """What the *outcomes* of the checks of *part* come to."""
    if part.is_question:
        return conclude(part.checks, tuple([one._replace(source=source) for one in outcomes]))
    told = [
        _told(part, check, outcome, source)
        for check, outcome in zip(part.checks, outcomes, strict=True)
    ]
    return combine(told)


def _told(part: Part, check: Check, outcome: Outcome, source: str) -> Decision:
    """The figures after something was recorded or given back; the question was none."""
    if part.verb == "refund" or not went_beyond(check.limit, outcome):
        outcome = outcome._replace(allowed=True, retry_after_ns=0)
    return concluded(check.key, check.limit, outcome._replace(source=source))


def went_beyond(limit: Limit, outcome: Outcome) -> bool:
    """Whether more is recorded than *limit* holds, by the *outcome* for one more.

    A limit that is just full is as new after its period; with debt it takes longer. Only a sliding
    counter cannot tell: it counts a full one as one beyond. (Stores may round to microseconds.)
    """
    if outcome.allowed:
        return False
    if isinstance(limit, SlidingWindowCounter):
        return True
    return outcome.reset_after_ns >= limit.period_ns + MICROSECOND


def _checks(parts: Sequence[Part], places: Places) -> tuple[Check, ...]:
    return tuple([check for place in places for check in parts[place].checks])


def _note(
    parts: Sequence[Part], places: Places, outcomes: Outcomes, said: Said, source: str
) -> None:
    start = 0
    for place in places:
        end = start + len(parts[place].checks)
        said[place] = decision_of(parts[place], outcomes[start:end], source)
        start = end


# What to say when the store cannot be asked: each part as its rule says.


_POLICIES: Final = {policy: OnFailure(policy) for policy in get_args(FailurePolicy)}


class Outage:
    """Decides without the store, in *fallback*, which has the counters of this process for every
    way into it."""

    def __init__(self, fallback: Fallback) -> None:
        self._fallback = fallback

    def hear(self) -> None:
        """The store has answered."""
        if self._fallback.wants_word:
            self._fallback.succeed()

    def decide(
        self,
        parts: Sequence[Part],
        silent: Places,
        said: Said,
        error: StoreError,
        *,
        is_open: bool = True,
    ) -> None:
        """Note in *said* what comes of the parts in *silent*, to which the store said *error*.

        All or nothing, as ever: if another part refuses, these are only looked at. Raises
        `CallError` if an outage is to be an error.
        """
        if any(parts[n].on_failure == "error" for n in silent):
            self._fallback.fail(error)
            raise CallError(Code.UNAVAILABLE, "the store of the counters could not be asked")
        asked = {n: Unanswered(parts[n].checks, _on_failure(parts[n])) for n in silent}
        others = [n for n in range(len(parts)) if n not in asked]
        is_open = is_open and all(_is_open(parts[n], said[n]) for n in others)
        self._tell(parts, asked, said, error)
        for n in silent:
            if parts[n].verb == "look":
                said[n] = self._decide([asked[n]], error, consume=False)[0]
                is_open = is_open and _is_open(parts[n], said[n])
        takers = [n for n in silent if parts[n].verb == "take"]
        together = [n for n in takers if parts[n].role == "decides"]
        decided = self._decide([asked[n] for n in together], error, consume=is_open)
        for n, decision in zip(together, decided, strict=True):
            said[n] = decision
            is_open = is_open and decision.allowed
        for n in takers:
            if parts[n].role != "decides":
                said[n] = self._decide([asked[n]], error, consume=is_open)[0]
        self._count(parts, asked, said)

    def _decide(
        self, asked: list[Unanswered], error: StoreError, *, consume: bool
    ) -> list[Decision]:
        return self._fallback.decide(asked, error, consume=consume, is_counted=False)

    def _count(self, parts: Sequence[Part], asked: dict[int, Unanswered], said: Said) -> None:
        """Count the call once: by what decided it, or had to be recorded, if anything did."""
        heard = [(n, decision) for n in asked if (decision := said[n]) is not None]
        binding = [one for one in heard if parts[one[0]].role in ("decides", "quota")] or heard
        self._fallback.count_request(
            [asked[n] for n, _ in binding], [decision for _, decision in binding]
        )

    def _tell(
        self, parts: Sequence[Part], asked: dict[int, Unanswered], said: Said, error: StoreError
    ) -> None:
        """Record what is reported, and give back what is given back."""
        for n, one in asked.items():
            if parts[n].verb == "report":
                said[n] = _outage_told(
                    self._fallback.charge(one, error, is_counted=False), is_refund=False
                )
            elif parts[n].verb == "refund":
                said[n] = _outage_told(
                    self._fallback.refund(one, error, is_counted=False), is_refund=True
                )


def error_in(replies: Sequence[Any]) -> StoreError:
    """The error among *replies*, of which one is or has one; of several one that leaves open
    whether something was done."""
    found = []
    for reply in replies:
        each = reply if isinstance(reply, tuple) else (reply,)
        found += [one for one in each if isinstance(one, StoreError)]
    return min(found, key=lambda one: one.is_undone)


def _on_failure(part: Part) -> OnFailure:
    if part.rule is not None:
        return part.rule.on_failure
    return _POLICIES["fail_open" if part.on_failure == "error" else part.on_failure]


def _outage_told(decision: Decision, *, is_refund: bool) -> Decision:
    """The figures after something was recorded or given back; the question was none."""
    if decision.source == "fail_closed":
        return decision
    return combine([_of_one(part, is_refund=is_refund) for part in decision.limits])


def _of_one(part: Decision, *, is_refund: bool) -> Decision:
    figures = Outcome(part.allowed, part.remaining, part.retry_after_ns, part.reset_after_ns)
    is_over = not is_refund and went_beyond(part.limit, figures)
    source = "fail_open" if part.source == "fallback" and not is_over else part.source
    return Decision(
        part.key,
        part.limit,
        allowed=not is_over,
        remaining=part.remaining,
        retry_after_ns=part.retry_after_ns if is_over else 0,
        reset_after_ns=part.reset_after_ns,
        source=source,
    )


def _is_open(part: Part, decision: object) -> bool:
    """Whether *part* does not keep the others from being charged."""
    return part.role != "decides" or not part.is_question or decision is None or bool(decision)


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
        said[place] = Decision(
            decision.key,
            decision.limit,
            allowed=False,
            remaining=0,
            retry_after_ns=decision.retry_after_ns,
            reset_after_ns=decision.reset_after_ns,
        )
    if takes:
        yield [TakeEach(tuple(takes))]
