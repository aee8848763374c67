"""The error of a call that is not sent."""

from __future__ import annotations

from typing import Final, Literal

from headgate.errors import HeadgateError

Cause = Literal["server", "pace", "store"]
"""`server`: the server asked for a longer wait. `pace`: the pace allows the call too late. `store`:
the store of the pace cannot be reached, and `on_store_failure` is `fail_closed`."""

_REASONS: Final[dict[Cause, str]] = {
    "server": "the server asks for a wait that is longer than max_wait",
    "pace": "the pace is used up for longer than max_wait",
    "store": "the store of the pace cannot be reached, and on_store_failure is 'fail_closed'",
}


class NotSentError(HeadgateError):
    """A call is not sent because it would wait for longer than `RetryPolicy.max_wait`.

    `origin` is the scheme, host and port of the call, `cause` the reason. `retry_after` is the
    number of seconds until the call may be sent, or None if unknown. `attempts` is how often the
    call was sent and denied before, usually 0. Each client raises a subclass of its own error.
    """

    def __init__(
        self, origin: str, retry_after: float | None, cause: Cause, attempts: int = 0
    ) -> None:
        # Not super(): the next class may be the base error of a client, with other arguments.
        Exception.__init__(self, origin, retry_after, cause, attempts)
        self.origin = origin
        self.retry_after = retry_after
        self.cause: Cause = cause
        self.attempts = attempts

    def __str__(self) -> str:
        event = "not sent again" if self.attempts else "not sent"
        when = "" if self.retry_after is None else f"; retry after {self.retry_after:.3g} s"
        return f"{event} to {self.origin}: {_REASONS[self.cause]}{when}"
