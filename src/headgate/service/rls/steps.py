"""What is asked of the store at once, and what each part hears of the reply. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.decisions import combine
from headgate.errors import StoreError
from headgate.limits import SlidingWindowCounter
from headgate.stores.operations import Charge, Refund, Take, TakeEach
from headgate.stores.port import conclude, concluded
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Outcome
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.service.rls.asked import Part
    from headgate.stores.operations import Check, Operation, Outcomes

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
        return conclude(part.checks, outcomes, source=source)
    told = [
        _told(part, check, outcome, source)
        for check, outcome in zip(part.checks, outcomes, strict=True)
    ]
    return combine(told)


def _told(part: Part, check: Check, outcome: Outcome, source: str) -> Decision:
    """The figures after something was recorded or given back; the question was none."""
    if part.verb == "refund" or not went_beyond(check.limit, outcome):
        outcome = outcome._replace(allowed=True, retry_after_ns=0)
    return concluded(check.key, check.limit, outcome, source)


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
