"""The state machine of a circuit breaker. Pure: time and random numbers come in as arguments.

    closed ---- it fails ----> open ---- the pause has ended, a call comes --> half open
      ^                         ^  <---------- the probe fails -------------------- |
      |                         |                                                   | it succeeds
      +--- the ramp has ended - | <---------- a call of the ramp fails --------- ramping

*Closed*: every call goes to the store. The circuit opens after `failures` incidents in a row, or
when within `window_ns` at least `share` of at least `least_calls` calls failed, in at least twice
`failures` incidents. An incident is a failure of a call that began after the incident before: calls
in flight together, which fail together because one connection broke, are one. So a server that was
restarted, and takes connections again at once, opens nothing, and a store that hangs is found out
after as many timeouts as incidents, however many callers wait for it.

*Open*: no call goes to the store, for a pause that doubles from `first_pause_ns` to
`longest_pause_ns`, each cut at random to between its half and its whole.

*Half open*: the next call is a probe, and the only one. Calls beside it are rejected. A probe
without a result after `probe_ns` counts as lost, and another call takes its place. Without calls
there are no probes.

*Ramping*: the store has answered the probe. In every tenth of a second the first `first_calls` go
to it, so that a process with few calls notices nothing; of the others a share, which grows from
`first_share` to all, so that a fleet does not come back as a herd. The ramp is as long as the
circuit was open, at most `ramp_ns`, and by up to a third longer or shorter at random: after a short
outage no call is rejected for longer than the outage was. One failure opens the circuit again; the
pauses go on growing until it has been closed once.

Latency does not matter: a slow reply within the timeout is a success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import STORE_FAULTS, OptionError
from headgate.units import MILLISECOND, SECOND

SLICE_NS: Final = 100 * MILLISECOND
"""The part of a ramp in which the first calls go to the store whatever the share is."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import StoreError, StoreFault

State = Literal["closed", "half_open", "ramping", "open"]

ANSWERED: Final[frozenset[StoreFault]] = frozenset(("refused",))
"""Errors that only a store in working order gives.

`refused` concerns one call, such as one on a key that holds a foreign value. A probe that is
refused is a success: if it counted, a caller that finds such a key could open the circuit for all.
"""
COUNTED: Final = frozenset(STORE_FAULTS) - ANSWERED - {"closed", "circuit_open"}
"""Failures of the store as a whole: the next call is likely to fail as well.

Full, read-only and denying servers answer quickly, but no call succeeds there, and a server in
trouble is helped by fewer calls. `closed` and `circuit_open`, the state of another breaker, are not
about the store.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOptions:
    """When a circuit opens, for how long, and how it closes again; see the module."""

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
        positive = ("failures", "least_calls", "window_ns", "first_pause_ns", "probe_ns")
        least = dict.fromkeys(positive, 1) | {"ramp_ns": 0, "first_calls": 0}
        least["longest_pause_ns"] = self.first_pause_ns
        for name, bound in least.items():
            if (value := getattr(self, name)) < bound:
                raise OptionError(f"{name} of a breaker is {value}; expected at least {bound}")
        for name in ("share", "first_share"):
            if not 0 < (value := getattr(self, name)) <= 1:
                raise OptionError(f"{name} of a breaker is {value}; expected above 0, up to 1")


@dataclass(frozen=True, slots=True)
class Change:
    """A transition at *at_ns*.

    *lasts_ns* is the length of the pause or ramp that begins, *down_ns* the time since the circuit
    was last closed. *counts* has the calls so far: made, failed and rejected. *reason* and
    *message* are those of the last failure.
    """

    before: State
    after: State
    at_ns: int
    lasts_ns: int | None
    down_ns: int
    counts: tuple[int, int, int]
    reason: StoreFault
    message: str


class Breaker:
    """One circuit breaker. Not safe to share among threads, with one exception: any thread may
    read `mark` and then `is_closed`, and make a call with that mark as its ticket if it is closed.

    *on_change* is called at each transition, in the middle of it: it must not call the breaker.
    """

    def __init__(self, options: BreakerOptions, on_change: Callable[[Change], None]) -> None:
        self.options = options
        self._on_change = on_change
        self.mark = 0
        self.calls = self.failed_calls = self.rejected_calls = 0
        self.after_fork()

    def after_fork(self) -> None:
        """Start closed. Calls in flight mean nothing any more."""
        self.mark += 1
        self.state: State = "closed"
        self.is_closed = True
        self.failures = 0
        self.reason: StoreFault = "unavailable"
        self.message = ""
        self.since_ns: int | None = None
        self._changed_ns = self._until_ns = self._requested_ns = 0
        self._ramp_ns = self._ramped = self._slice_ns = 0
        self._pauses = self._incidents = 0
        self._window: tuple[int, int, int] | None = None

    def request(self, now_ns: int, chance: float) -> int | None:
        """A ticket for one call, whose result is to be reported with it; None: it is rejected.

        *chance* is a random number from 0 up to 1.
        """
        self._requested_ns = now_ns
        if self.state == "ramping" and self.share(now_ns) >= 1:
            self._close(now_ns)
        if self.is_closed:
            return self.mark
        if self.state == "ramping":
            if self._is_among_first(now_ns) or chance < self.share(now_ns):
                return self.mark
        elif now_ns >= self._until_ns:
            return self._probe(now_ns)
        self.rejected_calls += 1
        return None

    def succeeded(self, ticket: int, now_ns: int, chance: float) -> None:
        """Record that the call of *ticket* was answered."""
        self.calls += 1
        if self.is_closed:
            self.failures = 0
        elif ticket == self.mark and self.state == "half_open":
            down_ns = now_ns - (self.since_ns or 0)
            self._ramp_ns = round(min(self.options.ramp_ns, down_ns) * (2 + 2 * chance) / 3)
            self._ramped, self._slice_ns = 0, now_ns
            self._become("ramping", now_ns, lasts_ns=self._ramp_ns)

    def failed(self, ticket: int, error: StoreError, now_ns: int, chance: float) -> None:
        """Record that the call of *ticket* raised *error*, whose reason is one of `COUNTED`."""
        self.calls += 1
        self.failed_calls += 1
        if ticket != self.mark or self.state == "open":
            return
        self.mark += 1
        self.reason, self.message = error.reason, str(error)
        if self.is_closed:
            self.failures += 1
            is_failing = self._is_often_failing(now_ns)
            if self.failures < self.options.failures and not is_failing:
                return
        self._open(now_ns, chance)

    def abandoned(self, ticket: int, now_ns: int) -> None:
        """Record that the result of the call of *ticket* is unknown, or not about the store."""
        if ticket == self.mark and self.state == "half_open":
            self._until_ns = now_ns

    def share(self, now_ns: int) -> float:
        """The share of calls that go to the store, probes aside."""
        if self.state != "ramping":
            return float(self.is_closed)
        past_ns = now_ns - self._changed_ns
        if past_ns >= self._ramp_ns:
            return 1.0
        first = self.options.first_share
        return first + (1 - first) * max(past_ns, 0) / self._ramp_ns

    def wait_ns(self, now_ns: int) -> int:
        """Nanoseconds until the next probe may be made; 0 if calls go to the store."""
        return 0 if self.state in ("closed", "ramping") else max(self._until_ns - now_ns, 0)

    def close_unused(self, now_ns: int, after_ns: int) -> None:
        """Close without a probe if no call has come for *after_ns* that would have been made."""
        free_ns = self._until_ns
        if self.state == "ramping":
            free_ns = self._changed_ns + self._ramp_ns
        if not self.is_closed and now_ns - max(free_ns, self._requested_ns) >= after_ns:
            self.mark += 1
            self._close(now_ns)

    def _is_among_first(self, now_ns: int) -> bool:
        """True if a call of the ramp is one of the first of its slice."""
        if now_ns - self._slice_ns >= SLICE_NS:
            self._ramped, self._slice_ns = 0, now_ns
        self._ramped += 1
        return self._ramped <= self.options.first_calls

    def _probe(self, now_ns: int) -> int:
        self.mark += 1
        self._until_ns = now_ns + self.options.probe_ns
        if self.state != "half_open":
            self._become("half_open", now_ns)
        return self.mark

    def _open(self, now_ns: int, chance: float) -> None:
        options = self.options
        longest = min(options.longest_pause_ns, options.first_pause_ns << min(self._pauses, 32))
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
        """True if too many calls fail, though some succeed; called at each incident."""
        options = self.options
        if self._window is None or now_ns - self._window[0] > options.window_ns:
            self._window = (now_ns, self.calls - 1, self.failed_calls - 1)
            self._incidents = 0
        self._incidents += 1
        _, calls, failed = self._window
        calls, failed = self.calls - calls, self.failed_calls - failed
        is_much = self._incidents >= 2 * options.failures and calls >= options.least_calls
        return is_much and failed >= options.share * calls

    def _become(self, state: State, now_ns: int, *, lasts_ns: int | None = None) -> None:
        before, self.state, self.is_closed = self.state, state, state == "closed"
        self._changed_ns = now_ns
        down_ns = 0 if self.since_ns is None else now_ns - self.since_ns
        counts = self.calls, self.failed_calls, self.rejected_calls
        self._on_change(
            Change(before, state, now_ns, lasts_ns, down_ns, counts, self.reason, self.message)
        )
