"""The way of one request through all its waits and attempts, without I/O.

A shell asks `pause_ns` and sleeps until that is 0, takes its place in the pace, tells `set_out`
that it sends, and `heard` what came. All that is decided is decided here, on times and chances
that are passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.clients.not_sent import NotSentError, cause_of
from headgate.clients.signals import read_signal
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clients.host_state import Destination
    from headgate.clients.not_sent import Cause
    from headgate.clients.retry_policy import Courtesy
    from headgate.clients.signals import Answer
    from headgate.decision import Decision


class Journey:
    """One request to the destination *key*; *repeatable* if it may be sent more than once.

    *origin* is what an error calls the destination.

    *chance* gives random numbers from 0 to 1. For one caller at a time.
    """

    __slots__ = (
        "_attempts",
        "_chance",
        "_courtesy",
        "_destination",
        "_heeded_ns",
        "_not_before_ns",
        "_origin",
        "_repeatable",
        "_waited_ns",
        "key",
    )

    def __init__(
        self,
        key: str,
        destination: Destination,
        courtesy: Courtesy,
        chance: Callable[[], float],
        *,
        origin: str,
        repeatable: bool,
    ) -> None:
        self.key = key
        self._destination = destination
        self._courtesy = courtesy
        self._chance = chance
        self._origin = origin
        self._repeatable = repeatable
        self._attempts = 0
        self._waited_ns = 0
        self._heeded_ns = 0
        self._not_before_ns = 0

    @property
    def patience(self) -> float:
        """How many seconds it may still wait."""
        return max(self._courtesy.max_wait_ns - self._waited_ns, 0) / 1_000_000_000

    def pause_ns(self, now_ns: int) -> int:
        """How long to wait before it may be sent; 0: send it now.

        Ask again after the wait: the destination may have closed anew. Raises `NotSentError` if the
        wait would be too long.
        """
        self._heed(now_ns)
        pause_ns = self._not_before_ns - now_ns
        if pause_ns <= 0:
            return 0
        if self._is_too_long(pause_ns):
            raise self._not_sent(seconds_at_least(pause_ns), "closed")
        return pause_ns

    def may_go(self, now_ns: int) -> bool:
        """Whether it may be sent now."""
        self._heed(now_ns)
        return now_ns >= self._not_before_ns

    def add_wait(self, from_ns: int, to_ns: int) -> None:
        """It has waited, between these times."""
        self._waited_ns += max(to_ns - from_ns, 0)

    def out_of_pace(self, decision: Decision) -> NotSentError:
        """The error when the pace has refused."""
        cause = cause_of(decision)
        return self._not_sent(None if cause == "store" else decision.retry_after, cause)

    def set_out(self, now_ns: int) -> None:
        """It is sent now."""
        if not self._attempts:
            self._destination.add_request(now_ns)
        self._attempts += 1

    def heard(self, answer: Answer, now_ns: int, time_ns: int) -> bool:
        """Take note of an answer; whether the request is to be sent again.

        *time_ns* is the time of day, since the epoch.
        """
        signal = read_signal(answer, time_ns)
        self._destination.hear(answer.status, signal, now_ns, self._chance())
        if not signal.refused or not self._repeatable:
            return False
        if self._attempts >= self._courtesy.max_attempts:
            return False
        if answer.status != 429 and not signal.wait_ns:
            pause_ns = self._courtesy.backoff.pause_ns(self._attempts, self._chance())
            self._not_before_ns = now_ns + pause_ns
        self._heed(now_ns)
        if self._is_too_long(self._not_before_ns - now_ns):
            return False
        return self._destination.take_retry(now_ns)

    def _heed(self, now_ns: int) -> None:
        """Choose a moment of its own after the destination opens, within what it may wait."""
        until_ns, length_ns, refusals = self._destination.closure
        if until_ns <= max(now_ns, self._heeded_ns):
            return
        spread_ns = self._courtesy.backoff.spread_ns(refusals, length_ns, self._chance())
        room_ns = self._courtesy.max_wait_ns - self._waited_ns - (until_ns - now_ns)
        self._heeded_ns = until_ns
        mine_ns = until_ns + min(spread_ns, max(room_ns, 0))
        self._not_before_ns = max(self._not_before_ns, mine_ns)

    def _not_sent(self, retry_after: float | None, cause: Cause) -> NotSentError:
        return NotSentError(self._origin, retry_after, cause, self._attempts)

    def _is_too_long(self, pause_ns: int) -> bool:
        return self._waited_ns + pause_ns > self._courtesy.max_wait_ns


# Which requests may be sent a second time.
#
# A request that was refused may still have been acted upon, by a proxy's timeout or a server that
# counts late. So a repeat must do no harm: the method is idempotent by RFC 9110, or the caller has
# given the request an `Idempotency-Key` by which the server knows it again. And the body must be
# there to be sent again.


IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that do once what they do twice."""

KEY_FIELD: Final = "idempotency-key"
"""The header field that makes any request one that may be repeated."""


def is_repeatable(method: str, idempotency_key: str | None, *, replayable: bool) -> bool:
    """Whether a request may be sent again. *replayable*: its body can be read from the start."""
    has_key = bool(idempotency_key and idempotency_key.strip(' "'))
    return replayable and (method in IDEMPOTENT or has_key)
