"""What came of a request, as far as the caller may hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decision import OVERRIDE, Decision, binds_more
from headgate.errors import OptionError, UsageError
from headgate.limits import Concurrency
from headgate.units import SECOND, milliseconds_up, seconds_up

if TYPE_CHECKING:
    from headgate.decision import Figures, HeaderMode
    from headgate.responses.pressure import Load


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
    decision = Decision(
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
    """The limit that binds most, as in `headgate.decision`; None if there is none."""
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


# What a refusal comes to: what its headers, its body and its gRPC status are all made of.


TOO_MANY_REQUESTS: Final = 429


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a request was refused, and for how long.

    *speaker*: the rule to name; None if nothing may be told. *wait_ns*: how long to wait, jitter
    included; None if waiting does not help or nothing may be told.
    """

    status: int
    reason: Reason
    speaker: Told | None
    wait_ns: int | None

    @property
    def is_outage(self) -> bool:
        """Whether no limit was exceeded: the store could not be asked."""
        return self.reason is Reason.OUTAGE

    @property
    def sheds(self) -> bool:
        """Whether no limit was exceeded: there is not enough capacity for now."""
        return self.reason is Reason.SHED

    @property
    def is_block(self) -> bool:
        """Whether the speaker's counter is blocked: no limit was exceeded."""
        return self.speaker is not None and self.speaker.decision.source == OVERRIDE

    @property
    def retry_after(self) -> int | None:
        """Whole seconds to wait, at least one."""
        return None if self.wait_ns is None else seconds_up(self.wait_ns)

    @property
    def retry_after_ms(self) -> int | None:
        """Whole milliseconds to wait, at least one."""
        return None if self.wait_ns is None else milliseconds_up(self.wait_ns)


def verdict_of(answer: Answer, options: ResponseOptions) -> Verdict:
    """The verdict on a refused request; `UsageError` on one that was not."""
    if answer.allowed:
        raise UsageError("the request was allowed: there is no refusal to word")
    told = loudest(answer)
    reason = Reason.EXCEEDED if told is None else reason_of(told)
    status = _status(reason, options)
    if told is None or told.headers == "redacted":
        return Verdict(status, reason, None, None)
    wait = told.decision.retry_after_ns
    if reason is Reason.SHED and _is_anybodys_guess(told.decision):
        wait = SECOND
    if wait is not None:
        wait = max(wait, 1)
        wait += _spread_ns(wait, options, reason, answer.jitter)
    return Verdict(status, reason, told, wait)


def _is_anybodys_guess(decision: Decision) -> bool:
    """Whether nobody knows when there will be capacity: a slot is free when its holder leaves, long
    before its lease runs out; and what never fits now does when the limit is raised again."""
    has_slots = isinstance(decision.limit, Concurrency) and decision.source != GATE
    return has_slots or decision.retry_after_ns is None


def _status(reason: Reason, options: ResponseOptions) -> int:
    if reason is Reason.EXCEEDED:
        return TOO_MANY_REQUESTS
    return options.outage_status if reason is Reason.OUTAGE else options.shed_status


def _spread_ns(wait: int, options: ResponseOptions, reason: Reason, jitter: float) -> int:
    """What is added to *wait* so that not all come back at once.

    After an outage everybody would, and all that were shed; so there it is not a matter of choice.
    """
    if reason is not Reason.EXCEEDED:
        return int(options.outage_spread * jitter * SECOND)
    return int(min(wait * options.jitter, options.jitter_most * SECOND) * jitter)


# What an operator may choose about responses.


LONGEST_SECRET: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """What to send. Whether a rule is told at all is said by the rule (`headers`).

    *x_ratelimit*, *ratelimit*: the families of headers, `X-RateLimit-*` and the IETF's pair.
    *draft03*: `RateLimit-Limit`, `-Remaining` and `-Reset` besides. *bucket*:
    `X-RateLimit-Bucket`, hashed with *bucket_secret* (at most 64 bytes), which makes ids that
    nobody else can compute.

    *problem*: problem details for all, not only for those who ask.

    *jitter*: the longest addition to the wait of a refusal, as a share of it; never more than
    *jitter_most* seconds.

    *outage_status*: for what was refused for want of a store. *shed_status*: for what was refused
    for want of capacity. *outage_spread*: over how many seconds the callers of both are spread.

    *pressure*: how long the queue is that a request was in, and how long it was delayed, as
    `Headgate-Queue` and `Headgate-Delay`. *orca*: the load, for balancers that read the header
    `endpoint-load-metrics`.
    """

    x_ratelimit: bool = True
    ratelimit: bool = True
    draft03: bool = False
    bucket: bool = False
    bucket_secret: bytes = b""
    problem: bool = False
    jitter: float = 0.0
    jitter_most: float = 60.0
    outage_status: int = 503
    outage_spread: float = 4.0
    shed_status: int = 503
    pressure: bool = True
    orca: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= 1:
            raise OptionError(f"jitter is {self.jitter!r}; expected a share from 0 to 1")
        for name in ("jitter_most", "outage_spread"):
            seconds = getattr(self, name)
            if not 0 <= seconds <= 86_400:
                raise OptionError(f"{name} is {seconds!r}; expected seconds from 0 to 86400")
        for name in ("outage_status", "shed_status"):
            status = getattr(self, name)
            if not 400 <= status <= 599:
                raise OptionError(f"{name} is {status!r}; expected 400 to 599")
        if len(self.bucket_secret) > LONGEST_SECRET:
            raise OptionError(
                f"bucket_secret has {len(self.bucket_secret)} bytes; at most {LONGEST_SECRET} fit"
            )


DEFAULT: Final = ResponseOptions()
