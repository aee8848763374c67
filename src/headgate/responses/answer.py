"""What came of a request, as far as the caller may hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decisions import Concluded, binds_more
from headgate.errors import OptionError
from headgate.limits import Concurrency

if TYPE_CHECKING:
    from headgate.decisions import Decision, Figures
    from headgate.responses.pressure import Load
    from headgate.rules.model import HeaderMode

CLOSED: Final = "fail_closed"
GATE: Final = "gate"
"""The source of what a gate decides at which requests take turns: it counts nothing, so there is no
policy to tell."""

WITHOUT_FIGURES: Final = frozenset({CLOSED, "fail_open", GATE})
"""The sources of decisions that nobody counted for: their figures mean nothing."""

_NO_LIMIT: Final = Concurrency(1, 1)
"""What stands where a decision has to have a limit. It is not told."""


@dataclass(slots=True)
class Told:
    """What the rule *name* decided, and what of it may be told.

    *sheds*: if it refuses, that is because capacity is short for now (a reserve, a turn, a limit
    that was lowered), not because the caller had more than its quota.

    (Nobody changes it, or an answer. They are not frozen because they are made for every request,
    and that would triple the time it takes.)
    """

    name: str
    decision: Decision
    headers: HeaderMode = "on"
    sheds: bool = False


def turned_away(name: str, wait_ns: int, *, headers: HeaderMode = "on") -> Told:
    """What the rule *name*, at whose gate there is no turn to be had, tells: to come back in
    *wait_ns*."""
    decision = Concluded(
        "",
        _NO_LIMIT,
        allowed=False,
        remaining=0,
        retry_after_ns=wait_ns,
        reset_after_ns=wait_ns,
        source=GATE,
    )
    return Told(name, decision, headers, sheds=True)


@dataclass(slots=True)
class Answer:
    """Whether a request may go on, and the enforcing rules that applied to it.

    *told* has no rules in shadow mode, and none of other callers. *jitter*, from 0 to 1, is drawn
    at random by whoever made the answer; it is used only where waits are to be spread.

    *loads* are of the queues in this process that the request was in, and *delayed_ns* is how long
    it was in them. (Those of a limit that is a queue are found in what was decided.)
    *requests_per_second* is of this process, for balancers.
    """

    allowed: bool
    told: tuple[Told, ...] = ()
    jitter: float = 0.0
    loads: tuple[Load, ...] = ()
    delayed_ns: int = 0
    requests_per_second: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= 1:
            raise OptionError(f"jitter is {self.jitter!r}; expected a number from 0 to 1")


class Reason(IntEnum):
    """Why a rule refuses; what says more comes later.

    OUTAGE: the store could not be asked. SHED: there is not enough capacity for now. EXCEEDED: the
    caller had more than a limit allows, or is blocked.
    """

    OUTAGE = 0
    SHED = 1
    EXCEEDED = 2


class Part(NamedTuple):
    """One limit of a rule, under the name that clients know it by."""

    policy: str
    decision: Decision

    @property
    def has_figures(self) -> bool:
        return self.decision.source not in WITHOUT_FIGURES


def parts_of(told: Told) -> list[Part]:
    """The limits of a rule: the first has its name, the next ones `name/2`, `name/3`.

    The id of a rule has no slash in it, so no two policies are ever called the same.
    """
    stack = told.decision.limits
    if len(stack) == 1:
        return [Part(told.name, told.decision)]
    return [
        Part(told.name if place == 1 else f"{told.name}/{place}", decision)
        for place, decision in enumerate(stack, 1)
    ]


def open_parts(answer: Answer) -> list[Part]:
    """The limits of all rules whose headers are on."""
    return [part for told in answer.told if _is_open(told) for part in parts_of(told)]


def open_limits(answer: Answer) -> list[tuple[str, Figures]]:
    """The same with the figures of each, which are computed when they are read: so read once."""
    found: list[tuple[str, Figures]] = []
    for told in answer.told:
        if told.headers == "on":
            figures = told.decision.figures()
            if figures[6] == GATE:
                continue
            if not figures[7]:
                found.append((told.name, figures))
            else:
                found += [(part.policy, part.decision.figures()) for part in parts_of(told)]
    return found


def tightest(parts: list[Part]) -> Part | None:
    """The limit that binds most, as in `headgate.decisions.combine`; None if there is none."""
    if not parts:
        return None
    chosen = parts[0]
    for part in parts[1:]:
        if binds_more(part.decision, chosen.decision):
            chosen = part
    return chosen


def loudest(answer: Answer) -> Told | None:
    """The rule that speaks for a refusal: the one with the longest wait.

    A rule that was exceeded, which is the caller's own doing, comes before one that is short of
    capacity, and that before one that could not be checked; of equal waits one that may be told
    comes before one that may not.
    """
    refusing = [told for told in answer.told if not told.decision.allowed]
    return max(refusing, key=_loudness, default=None)


def reason_of(told: Told) -> Reason:
    """Why the rule of *told*, which refuses, does so."""
    if told.decision.source == CLOSED:
        return Reason.OUTAGE
    return Reason.SHED if told.sheds else Reason.EXCEEDED


def _is_open(told: Told) -> bool:
    return told.headers == "on" and told.decision.source != GATE


def _loudness(told: Told) -> tuple[object, ...]:
    return reason_of(told), *_tightness(told.decision), told.headers != "redacted"


def _tightness(decision: Decision) -> tuple[bool, bool, int]:
    """How much a decision binds: refusals by their wait, those without end most; others by what
    is left."""
    if decision.allowed:
        return False, False, -decision.remaining
    wait = decision.retry_after_ns
    return True, wait is None, wait or 0
