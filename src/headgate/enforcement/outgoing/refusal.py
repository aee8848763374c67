"""What a call raises that was not sent."""

from __future__ import annotations

from typing import Literal

from headgate.errors import HeadgateError

Cause = Literal["closed", "paced"]
"""`closed`: the server said to wait for longer. `paced`: its turn would come too late."""


class NotSentError(HeadgateError):
    """A call was not sent: it would have had to wait for longer than `Courtesy.max_wait`.

    `destination` is whom it was for, `retry_after` in how many seconds it may be sent (None: there
    is no telling), `cause` why not now. What each client raises is an error of that client too.
    """

    def __init__(self, destination: str, retry_after: float | None, cause: Cause) -> None:
        # Not super(): next in line may be a client's own base, which takes other arguments.
        Exception.__init__(self, destination, retry_after, cause)
        self.destination = destination
        self.retry_after = retry_after
        self.cause: Cause = cause

    def __str__(self) -> str:
        why = "the server said to wait" if self.cause == "closed" else "its pace is used up"
        when = "" if self.retry_after is None else f"; retry after {self.retry_after:.3g} s"
        return f"not sent to {self.destination}: {why}, longer than max_wait allows{when}"
