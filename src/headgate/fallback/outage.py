"""Whether the store is gone, since when, and how requests were decided meanwhile. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decisions import FailurePolicy, OnFailure

Mode = Literal["fail_open", "fallback", "local", "fail_closed", "escalated"]
"""How a request was decided: admitted because the store is gone; refused because the share of this
process was used up; by a limit that is `local`, or `fail_closed`; or by one that had failed open
for too long."""

QUIET_NS: Final = SECOND
"""How long no call must have failed before one that succeeds ends an outage: where one call of many
fails, that is one outage and not as many."""


class Stance(NamedTuple):
    """What a limit does now; *is_escalated*: because it has failed open for too long."""

    mode: FailurePolicy
    is_escalated: bool = False


class Ended(NamedTuple):
    """An outage that is over: how long it was, and how many requests were decided how."""

    lasted_ns: int
    decided: dict[Mode, int]


class Outage:
    """The outage of one store, as one process sees it. The caller has a lock."""

    __slots__ = ("_decided", "_escalations", "_failed_ns", "_gone_ns", "began_ns")

    def __init__(self) -> None:
        self.began_ns: int | None = None
        """When the first call failed; None if the store is there."""
        self._failed_ns = 0
        self._gone_ns: int | None = None
        self._decided: dict[Mode, int] = {}
        self._escalations: set[str] = set()

    def fail(self, now: int) -> bool:
        """A call has failed; whether an outage begins with it."""
        if self._gone_ns is None:
            self._gone_ns = now
        self._failed_ns = max(now, self._failed_ns)
        if self.began_ns is not None:
            return False
        self.began_ns = self._failed_ns = now
        return True

    def hear(self) -> None:
        """A call has succeeded, though others may be held back still."""
        self._gone_ns = None

    def end(self, now: int, *, is_certain: bool = False) -> Ended | None:
        """A call has succeeded, or it *is_certain* that the store is back; the outage, if that is
        its end."""
        self.hear()
        if self.began_ns is None or (not is_certain and now - self._failed_ns < QUIET_NS):
            return None
        ended = Ended(max(now - self.began_ns, 0), self._decided)
        self.began_ns, self._decided, self._escalations = None, {}, set()
        return ended

    def stance(self, on_failure: OnFailure, now: int) -> Stance:
        """What a limit does that says *on_failure*. How long it fails open counts from the first
        failure since a call has succeeded."""
        most_ns = on_failure.open_ns
        if on_failure.mode != "fail_open" or most_ns is None or self._gone_ns is None:
            return Stance(on_failure.mode)
        if now - self._gone_ns < most_ns:
            return Stance("fail_open")
        return Stance(on_failure.then, is_escalated=True)

    def escalate(self, mode: FailurePolicy) -> bool:
        """Limits that failed open do *mode* now; whether that is new in this outage."""
        is_new = mode not in self._escalations
        self._escalations.add(mode)
        return is_new

    def count(self, mode: Mode) -> None:
        """A request was decided."""
        self._decided[mode] = self._decided.get(mode, 0) + 1
