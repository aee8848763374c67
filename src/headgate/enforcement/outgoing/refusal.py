"""What a call raises that was not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.decisions import Decision

Cause = Literal["closed", "paced", "store"]
"""`closed`: the server said to wait for longer. `paced`: its turn would come too late. `store`:
nobody knows its turn, since the store cannot be reached, and `on_store_failure` is `fail_closed`.
"""

_WHY: Final[dict[Cause, str]] = {
    "closed": "the server said to wait, longer than max_wait allows",
    "paced": "its pace is used up, for longer than max_wait allows",
    "store": "the store of its pace cannot be reached, and on_store_failure is 'fail_closed'",
}


class NotSentError(HeadgateError):
    """A call was not sent: it would have had to wait for longer than `Courtesy.max_wait`.

    `destination` is whom it was for: scheme, host and port. `retry_after` in how many seconds it
    may be sent (None: there is no telling), `cause` why not now. `attempts` is how often it had
    been sent and refused before; mostly 0. What each client raises is an error of that client too.
    """

    def __init__(
        self, destination: str, retry_after: float | None, cause: Cause, attempts: int = 0
    ) -> None:
        # Not super(): next in line may be a client's own base, which takes other arguments.
        Exception.__init__(self, destination, retry_after, cause, attempts)
        self.destination = destination
        self.retry_after = retry_after
        self.cause: Cause = cause
        self.attempts = attempts

    def __str__(self) -> str:
        what = "not sent again" if self.attempts else "not sent"
        when = "" if self.retry_after is None else f"; retry after {self.retry_after:.3g} s"
        return f"{what} to {self.destination}: {_WHY[self.cause]}{when}"


def cause_of(decision: Decision) -> Cause:
    """Why the pace refused."""
    return "store" if decision.source == "fail_closed" else "paced"
