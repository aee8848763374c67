"""The one place where a denial becomes an exception: a decorated call has no other way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.decisions.decision import Decision


class RateLimitedError(HeadgateError):
    """A decorated call was refused; `decision` says by which limit and until when."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(decision)

    def __str__(self) -> str:
        decision = self.decision
        if decision.retry_after is None:
            wait = "it can never fit"
        else:
            wait = f"retry after {decision.retry_after:g} s"
        return f"{decision.key!r} is over its limit of {decision.limit}: {wait}"
