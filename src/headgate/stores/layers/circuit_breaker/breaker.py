"""When to ask a store that fails: a circuit breaker. Pure: time and chance come in as arguments.

    closed ---- it fails ----> open ---- the pause is over, somebody asks ----> half open
      ^                         ^  <---------- the probe fails --------------------- |
      |                         |                                                    | it succeeds
      +--- the ramp is over --- | <---------- a call of the ramp fails ---------- ramping

*Closed*: every call goes to the store. It opens after `failures` incidents in a row, or when within
`window_ns` at least `share` of at least `least_calls` calls failed, in at least twice `failures`
incidents. An incident is a failure of a call that began after the incident before: calls that were
under way together, and fail together because one connection broke, are one. So a server that was
restarted, and takes connections again at once, opens nothing, and a store that hangs is found out
after as many deadlines as incidents, however many callers wait for it.

*Open*: no call goes to the store, for a pause that doubles from `first_pause_ns` to
`longest_pause_ns`, each cut to between its half and its whole by chance.

*Half open*: the next call is a probe, and the only one. Calls beside it are refused. A probe that
has not come back after `probe_ns` is taken for lost, and another call is sent in its place. Without
calls there are no probes: nothing happens.

*Ramping*: the store has answered the probe. In every tenth of a second the first `first_calls` go
to it, so that a process which asks seldom notices nothing; of the others a share, which grows from
`first_share` to all: a fleet whose store comes back does not come back as a herd. That takes as
long as the store was left alone, at most `ramp_ns`, and longer or shorter by up to a third by
chance: who is refused meanwhile is so though the store is there, and after a blip nobody shall be
refused for longer than the blip was. One failure, and it is open again; the pauses go on growing
until it has been closed once.

How long a call takes is nothing to the breaker: slow, but within the deadline, is an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND

SLICE_NS: Final = 100 * MILLISECOND
"""In each such part of a ramp some calls go to the store whatever the share is."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import StoreFault

State = Literal["closed", "half_open", "ramping", "open"]

COUNTED: Final[frozenset[StoreFault]] = frozenset(
    (
        "unavailable",
        "unreachable",
        "timeout",
        "loading",
        "readonly",
        "out_of_memory",
        "busy",
        "denied",
        "cluster_down",
    )
)
"""Failures of the store as a whole: the next call is likely to meet the same.

Full, read-only and denying servers answer quickly, but no call comes to anything there, and who is
in trouble is helped by being left alone. Not counted is what says something about one call only:
`refused`, such as a key that somebody else has put something else under. A store that refuses has
answered, so a probe that is refused is a success; if it counted, whoever finds such a key could
switch the store off for everybody. `closed` is what the owner wanted, and `circuit_open` is what
another breaker said: neither says anything.
"""
ANSWERED: Final[frozenset[StoreFault]] = frozenset(("refused",))
"""Errors that only a store in working order gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTerms:
    """When a breaker opens, for how long, and how it closes again. The module says what is what."""

    failures: int = 3
    share: float = 0.5
    least_calls: int = 20
    window_ns: int = 5 * SECOND
    first_pause_ns: int = 200 * MILLISECOND
    longest_pause_ns: int = 2 * SECOND
    ramp_ns: int = 3 * SECOND // 2
    first_share: float = 0.1
    first_calls: int = 10
    probe_ns: int = 10 * SECOND

    def __post_init__(self) -> None:
        for name in ("failures", "least_calls", "window_ns", "first_pause_ns", "probe_ns"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} of a breaker is {getattr(self, name)}; expected above 0")
        if self.longest_pause_ns < self.first_pause_ns:
            raise OptionError("longest_pause_ns of a breaker is below its first_pause_ns")
        for name in ("ramp_ns", "first_calls"):
            if getattr(self, name) < 0:
                raise OptionError(
                    f"{name} of a breaker is {getattr(self, name)}; expected at least 0"
                )
        for name in ("share", "first_share"):
            if not 0 < getattr(self, name) <= 1:
                raise OptionError(
                    f"{name} of a breaker is {getattr(self, name)}; expected above 0, up to 1"
                )


@dataclass(frozen=True, slots=True)
class Change:
    """A transition at *at_ns*, and what happened since the one before.

    *lasted_ns* is how long it was in the state *before*, None if it has been for ever; *lasts_ns*
    how long the pause or the ramp is that begins. *calls* were made since, of which *failed*;
    *refused* were not made. *reason* is that of the last failure, *down_ns* the time since it was
    last closed.
    """

    before: State
    after: State
    at_ns: int
    lasted_ns: int | None
    lasts_ns: int | None
    calls: int
    failed: int
    refused: int
    reason: StoreFault
    down_ns: int


class Breaker:
    """One breaker. Not safe to share among threads; but `mark`, then `is_closed`, may be read
    by anybody: a call may be made with that mark as its ticket if it is closed.

    *tell* is called at every transition, in the middle of it: it must not ask back.
    """

    __slots__ = (
        "_asked_ns",
        "_incidents",
        "_pauses",
        "_ramp_ns",
        "_ramped",
        "_slice_ns",
        "_tell",
        "_told",
        "_until_ns",
        "_window",
        "calls",
        "changed_ns",
        "failed_calls",
        "failures",
        "is_closed",
        "mark",
        "reason",
        "refused_calls",
        "since_ns",
        "state",
        "terms",
    )

    def __init__(self, terms: BreakerTerms, tell: Callable[[Change], None]) -> None:
        self.terms = terms
        self._tell = tell
        self.mark = 0
        self.calls = self.failed_calls = self.refused_calls = 0
        self.after_fork()

    def after_fork(self) -> None:
        """As it was made: closed. Calls that are under way mean nothing any more."""
        self.mark += 1
        self.state: State = "closed"
        self.is_closed = True
        self.failures = 0
        self.reason: StoreFault = "unavailable"
        self.since_ns: int | None = None
        self.changed_ns: int | None = None
        self._until_ns = self._asked_ns = 0
        self._ramp_ns = self._ramped = self._slice_ns = 0
        self._pauses = 0
        self._incidents = 0
        self._window: tuple[int, int, int] | None = None
        self._told = (self.calls, self.failed_calls, self.refused_calls)

    def admit(self, now_ns: int, chance: float) -> int | None:
        """A ticket for one call, of which to tell what came; None: it is refused.

        *chance* is a number from 0 up to 1.
        """
        self._asked_ns = now_ns
        if self.state == "ramping" and self.share(now_ns) >= 1:
            self._close(now_ns)
        if self.is_closed:
            return self.mark
        if self.state == "ramping":
            if self._is_among_first(now_ns) or chance < self.share(now_ns):
                return self.mark
        elif now_ns >= self._until_ns:
            return self._probe(now_ns)
        self.refused_calls += 1
        return None

    def succeeded(self, ticket: int, now_ns: int, chance: float) -> None:
        """The call of *ticket* was answered."""
        self.calls += 1
        if self.is_closed:
            self.failures = 0
        elif ticket == self.mark and self.state == "half_open":
            down_ns = now_ns - (self.since_ns or 0)
            self._ramp_ns = round(min(self.terms.ramp_ns, down_ns) * (2 + 2 * chance) / 3)
            self._ramped, self._slice_ns = 0, now_ns
            self._become("ramping", now_ns, lasts_ns=self._ramp_ns)

    def failed(self, ticket: int, reason: StoreFault, now_ns: int, chance: float) -> None:
        """The call of *ticket* failed because of *reason*, which is one of `COUNTED`."""
        self.calls += 1
        self.failed_calls += 1
        if ticket != self.mark or self.state == "open":
            return
        self.mark += 1
        self.reason = reason
        if self.is_closed:
            self.failures += 1
            is_failing = self._is_often_failing(now_ns)
            if self.failures < self.terms.failures and not is_failing:
                return
        self._open(now_ns, chance)

    def abandoned(self, ticket: int, now_ns: int) -> None:
        """Nobody will know what came of the call of *ticket*, or it said nothing of the store."""
        if ticket == self.mark and self.state == "half_open":
            self._until_ns = now_ns

    def share(self, now_ns: int) -> float:
        """The share of calls that go to the store, probes aside."""
        if self.state != "ramping":
            return float(self.is_closed)
        past_ns = now_ns - (self.changed_ns or 0)
        if past_ns >= self._ramp_ns:
            return 1.0
        first = self.terms.first_share
        return first + (1 - first) * max(past_ns, 0) / self._ramp_ns

    def wait_ns(self, now_ns: int) -> int:
        """Nanoseconds until the next probe may be made; 0 where there is nothing to wait for."""
        return 0 if self.state in ("closed", "ramping") else max(self._until_ns - now_ns, 0)

    def is_deserted(self, now_ns: int, after_ns: int) -> bool:
        """Whether nobody has asked for *after_ns*, though a call would have been let through."""
        if self.is_closed:
            return False
        free_ns = self._until_ns
        if self.state == "ramping":
            free_ns = (self.changed_ns or 0) + self._ramp_ns
        return now_ns - max(free_ns, self._asked_ns) >= after_ns

    def desert(self, now_ns: int) -> None:
        """Close it, untried: nobody asks any more."""
        self.mark += 1
        self._close(now_ns)

    def _is_among_first(self, now_ns: int) -> bool:
        """Whether a call of the ramp is one of the first of its slice."""
        if now_ns - self._slice_ns >= SLICE_NS:
            self._ramped, self._slice_ns = 0, now_ns
        self._ramped += 1
        return self._ramped <= self.terms.first_calls

    def _probe(self, now_ns: int) -> int:
        self.mark += 1
        self._until_ns = now_ns + self.terms.probe_ns
        if self.state != "half_open":
            self._become("half_open", now_ns)
        return self.mark

    def _open(self, now_ns: int, chance: float) -> None:
        terms = self.terms
        longest = min(terms.longest_pause_ns, terms.first_pause_ns << min(self._pauses, 32))
        self._pauses += 1
        pause_ns = round(longest * (1 + chance) / 2)
        self._until_ns = now_ns + pause_ns
        if self.since_ns is None:
            self.since_ns = now_ns
        self._become("open", now_ns, lasts_ns=pause_ns)

    def _close(self, now_ns: int) -> None:
        self.failures = self._pauses = 0
        self._window = None
        self._become("closed", now_ns)
        self.since_ns = None

    def _is_often_failing(self, now_ns: int) -> bool:
        """Whether too many calls fail, though some succeed; called at each incident."""
        terms = self.terms
        if self._window is None or now_ns - self._window[0] > terms.window_ns:
            self._window = (now_ns, self.calls - 1, self.failed_calls - 1)
            self._incidents = 0
        self._incidents += 1
        _, calls, failed = self._window
        calls, failed = self.calls - calls, self.failed_calls - failed
        is_much = self._incidents >= 2 * terms.failures and calls >= terms.least_calls
        return is_much and failed >= terms.share * calls

    def _become(self, state: State, now_ns: int, *, lasts_ns: int | None = None) -> None:
        before, self.state, self.is_closed = self.state, state, state == "closed"
        counts = (self.calls, self.failed_calls, self.refused_calls)
        calls, failed, refused = (now - then for now, then in zip(counts, self._told, strict=True))
        lasted_ns = None if self.changed_ns is None else now_ns - self.changed_ns
        down_ns = 0 if self.since_ns is None else now_ns - self.since_ns
        self._told, self.changed_ns = counts, now_ns
        self._tell(
            Change(
                before,
                state,
                now_ns,
                lasted_ns,
                lasts_ns,
                calls,
                failed,
                refused,
                self.reason,
                down_ns,
            )
        )
