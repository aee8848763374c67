"""The outcome of a request, and how much of it the response shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from headgate.decision import OVERRIDE, PATH, denial
from headgate.errors import OptionError, UsageError
from headgate.limits import Concurrency
from headgate.units import SECOND, milliseconds_up, seconds_up

if TYPE_CHECKING:
    from headgate.decision import Decision, HeaderMode
    from headgate.llm.protocol import Counted, Protocol
    from headgate.responses.pressure import Load


CLOSED: Final = "fail_closed"
GATE: Final = "gate"
"""The source of a denial by a queue that counts nothing: it has no policy to send."""

WITHOUT_FIGURES: Final = frozenset({CLOSED, "fail_open", GATE})
"""The sources of decisions without a counter: their figures mean nothing."""

TOO_MANY_REQUESTS: Final = 429
URI_TOO_LONG: Final = 414
LONGEST_SECRET: Final = 64

_NO_LIMIT: Final = Concurrency(1, 1)
"""The limit of a decision by a queue. It is not sent."""


@dataclass(slots=True)
class RuleAnswer:
    """The decision of the rule *name*, and how much of it responses show.

    *sheds*: a denial means that capacity is short (a reserve, a queue, a lowered limit), not that
    the caller exceeded its quota. *counts*: requests, or what calls of a language model use.
    Read-only; not frozen, because one is made for every request.
    """

    name: str
    decision: Decision
    headers: HeaderMode = "on"
    sheds: bool = False
    counts: Counted = "requests"

    @property
    def is_named(self) -> bool:
        """True if the body of a denial names the rule."""
        return self.headers in ("on", "brief")

    @property
    def limits(self) -> list[tuple[str, Decision]]:
        """The decision of each limit: the first has the rule's name, then `name/2`, `name/3`."""
        return named_limits(self.name, self.decision)


def named_limits(name: str, decision: Decision) -> list[tuple[str, Decision]]:
    """Return the decisions of the limits of a rule by the names of their policies.

    The id of a rule has no slash in it, so no two policies have the same name.
    """
    if not decision.parts:
        return [(name, decision)]
    return [
        (name if place == 1 else f"{name}/{place}", part)
        for place, part in enumerate(decision.limits, 1)
    ]


def queue_denial(name: str, wait_ns: int, *, headers: HeaderMode = "on") -> RuleAnswer:
    """Return the denial of a full queue of the rule *name*: retry in *wait_ns*."""
    decision = denial("", _NO_LIMIT, wait_ns, wait_ns, GATE)
    return RuleAnswer(name, decision, headers, sheds=True)


@dataclass(slots=True)
class Answer:
    """The outcome of a request, with the enforcing rules that applied to it.

    *rules* has no shadow rules. *jitter*, a random number from 0 to 1, spreads waits where the
    options ask for it. *loads* are the queues of this process that the request was in, *delayed_ns*
    is how long it was in them. (Queues that are limits are found in *rules*.)
    *requests_per_second* is of this process, for load balancers. *is_replay*: it repeats a request
    that was charged before. *protocol*: it is a call of a language model in this protocol, whose
    clients expect headers and errors of their own.
    """

    allowed: bool
    rules: tuple[RuleAnswer, ...] = ()
    jitter: float = 0.0
    loads: tuple[Load, ...] = ()
    delayed_ns: int = 0
    requests_per_second: float = 0.0
    is_replay: bool = False
    protocol: Protocol | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= 1:
            raise OptionError(f"jitter is {self.jitter!r}; expected a number from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """The headers and bodies of responses. The header mode of a rule decides if it is shown.

    *x_ratelimit*, *ratelimit*: the families of headers, `X-RateLimit-*` and the IETF's pair.
    *draft03*: `RateLimit-Limit`, `-Remaining` and `-Reset` as well. *bucket*:
    `X-RateLimit-Bucket`, hashed with *bucket_secret* (at most 64 bytes), which makes ids that
    others cannot compute. *problem*: problem details for all, not only for those who ask.

    *jitter*: the longest addition to the wait of a denial, as a share of it; never more than
    *jitter_most* seconds. *outage_status*: for denials without a store. *shed_status*: for denials
    because capacity is short. *outage_spread*: the callers of both are spread over these seconds.

    *pressure*: `Headgate-Queue` and `Headgate-Delay`. *orca*: the load, for balancers that read the
    header `endpoint-load-metrics`.
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

    @property
    def has_usual_families(self) -> bool:
        """True if responses have `X-RateLimit-*` and the IETF's pair, and no other family."""
        return self.x_ratelimit and self.ratelimit and not (self.draft03 or self.bucket)


DEFAULT: Final = ResponseOptions()


_OPENNESS: Final = ("redacted", "off", "brief", "on")
"""The header modes, from the one that shows least."""


# The denial that headers, body and gRPC status are made of.


class Reason(IntEnum):
    """The reason of a denial; of several rules the one with the highest reason speaks.

    OUTAGE: the store did not answer. SHED: capacity is short. EXCEEDED: the caller exceeded a
    limit, or is blocked. TOO_LONG: the path is longer than what rules examine.
    """

    OUTAGE = 0
    SHED = 1
    EXCEEDED = 2
    TOO_LONG = 3


@dataclass(frozen=True, slots=True)
class Denial:
    """The reason of a denial, and when to retry.

    *speaker*: the rule that the body names; None if it names none. *wait_ns*: the wait, with
    jitter; None if waiting does not help, or the wait may not be sent (*is_silent*).
    """

    status: int
    reason: Reason
    speaker: RuleAnswer | None = None
    wait_ns: int | None = None
    is_silent: bool = False

    @property
    def is_block(self) -> bool:
        """True if the speaker's counter is blocked: no limit was exceeded."""
        return self.speaker is not None and self.speaker.decision.source == OVERRIDE

    @property
    def retry_after(self) -> int | None:
        """Whole seconds to wait, at least one."""
        return None if self.wait_ns is None else seconds_up(self.wait_ns)

    @property
    def retry_after_ms(self) -> int | None:
        """Whole milliseconds to wait, at least one."""
        return None if self.wait_ns is None else milliseconds_up(self.wait_ns)


def denial_of(answer: Answer, options: ResponseOptions) -> Denial:
    """Return the denial of a request; `UsageError` if it was allowed.

    The rule with the longest wait speaks. A rule that was exceeded, which is the caller's own
    doing, comes before one that is short of capacity, and that before one that was not checked; of
    equal waits the one that shows more comes first.
    """
    if answer.allowed:
        raise UsageError("the request was allowed: it has no denial")
    denying = [rule for rule in answer.rules if not rule.decision.allowed]
    one = max(denying, key=_precedence, default=None)
    reason = Reason.EXCEEDED if one is None else reason_of(one)
    statuses = (options.outage_status, options.shed_status, TOO_MANY_REQUESTS, URI_TOO_LONG)
    if one is None or one.headers == "redacted":
        return Denial(statuses[reason], reason, is_silent=True)
    wait = one.decision.retry_after_ns
    if reason is Reason.SHED and _is_wait_unknown(one.decision):
        wait = SECOND
    if wait is not None:
        wait = max(wait, 1)
        wait += _spread_ns(wait, options, reason, answer.jitter)
    return Denial(statuses[reason], reason, one if one.is_named else None, wait)


def reason_of(one: RuleAnswer) -> Reason:
    """Return why the rule of *one*, which denies, does so."""
    if one.decision.source == CLOSED:
        return Reason.OUTAGE
    if one.decision.source == PATH:
        return Reason.TOO_LONG
    return Reason.SHED if one.sheds else Reason.EXCEEDED


def _precedence(one: RuleAnswer) -> tuple[Reason, bool, int, int]:
    wait = one.decision.retry_after_ns
    return reason_of(one), wait is None, wait or 0, _OPENNESS.index(one.headers)


def _is_wait_unknown(decision: Decision) -> bool:
    """True if capacity comes back at an unknown time: a slot is free when its holder leaves, long
    before its lease expires; what never fits now fits when the limit is raised again."""
    has_slots = isinstance(decision.limit, Concurrency) and decision.source != GATE
    return has_slots or decision.retry_after_ns is None


def _spread_ns(wait: int, options: ResponseOptions, reason: Reason, jitter: float) -> int:
    """Return the addition to *wait* that keeps callers from retrying all at once.

    After an outage, or when capacity was short, all of them would: there it is not optional.
    """
    if reason in (Reason.OUTAGE, Reason.SHED):
        return int(options.outage_spread * jitter * SECOND)
    return int(min(wait * options.jitter, options.jitter_most * SECOND) * jitter)
