"""What a refusal comes to: what its headers, its body and its gRPC status are all made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.decisions import OVERRIDE
from headgate.errors import UsageError
from headgate.responses.answer import CLOSED, Told, loudest
from headgate.responses.rounding import milliseconds_up, seconds_up
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.responses.answer import Answer
    from headgate.responses.options import ResponseOptions

TOO_MANY_REQUESTS: Final = 429


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a request was refused, and for how long.

    *is_outage*: no limit was exceeded; the store could not be asked. *speaker*: the rule to name;
    None if nothing may be told. *wait_ns*: how long to wait, jitter included; None if waiting does
    not help or nothing may be told.
    """

    status: int
    is_outage: bool
    speaker: Told | None
    wait_ns: int | None

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
    is_outage = told is not None and told.decision.source == CLOSED
    status = options.outage_status if is_outage else TOO_MANY_REQUESTS
    if told is None or told.headers == "redacted":
        return Verdict(status, is_outage, None, None)
    wait = told.decision.retry_after_ns
    if wait is not None:
        wait = max(wait, 1)
        wait += _spread_ns(wait, options, is_outage=is_outage, jitter=answer.jitter)
    return Verdict(status, is_outage, told, wait)


def _spread_ns(wait: int, options: ResponseOptions, *, is_outage: bool, jitter: float) -> int:
    """What is added to *wait* so that not all come back at once.

    After an outage everybody would; so there it is not a matter of choice.
    """
    if is_outage:
        return int(options.outage_spread * jitter * SECOND)
    return int(min(wait * options.jitter, options.jitter_most * SECOND) * jitter)
