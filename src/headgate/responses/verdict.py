"""What a refusal comes to: what its headers, its body and its gRPC status are all made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.decisions import OVERRIDE
from headgate.errors import UsageError
from headgate.limits import Concurrency
from headgate.responses.answer import GATE, Reason, Told, loudest, reason_of
from headgate.responses.rounding import milliseconds_up, seconds_up
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.responses.answer import Answer
    from headgate.responses.options import ResponseOptions

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
