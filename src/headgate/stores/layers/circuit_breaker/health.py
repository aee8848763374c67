"""The health of one store: its circuit breakers, metrics and log lines.

A store of several parts that fail on their own, as the nodes of a cluster do, names the part of a
key: `part_of(key)`. Each part has a breaker then. Otherwise there is one for the whole store.
"""

from __future__ import annotations

import logging
import threading
from operator import sub
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, WeakValueDictionary

from headgate.errors import StoreError
from headgate.observability.metrics import METRICS
from headgate.runtime.effects import Interrupted
from headgate.stores.layers.circuit_breaker.breaker import ANSWERED, COUNTED, Breaker, Change, State
from headgate.stores.operations import keys_of
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.errors import StoreFault
    from headgate.stores.layers.circuit_breaker.breaker import BreakerOptions
    from headgate.stores.operations import Operation

_log: Final = logging.getLogger("headgate.store")

LEVELS: Final[dict[State, int]] = {"closed": 0, "half_open": 1, "ramping": 1, "open": 2}
"""The value of the gauge; of several parts and layers of one store the worst."""
_REMINDER_NS: Final = 60 * SECOND

MOST_PARTS: Final = 64
"""Parts of a store that have a breaker of their own; the others share one."""
UNUSED_NS: Final = 3 * SECOND
"""A part without calls for so long has no keys any more: they have moved to another."""


Call = list[tuple[Breaker, int]]
"""A call of the store: the breakers that it passes, each with its ticket."""


class StoreHealth:
    """The circuit breakers of the store at *where*. Safe to share among threads.

    Locks are taken only where something has failed. *time_ns* is a clock that never steps back.
    """

    def __init__(
        self,
        where: str,
        part_of: Callable[[str], str] | None,
        options: BreakerOptions,
        time_ns: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self.where = where
        self.part_of = part_of
        self._options = options
        self._time_ns = time_ns
        self._chance = chance
        self._listeners: list[Callable[[Change], None]] = []
        self._lock = threading.Lock()
        self._changes: list[tuple[_Reporter, Change]] = []
        self.metrics = _metrics.get(where) or _metrics.setdefault(where, StoreMetrics(where))
        self.metrics.users.add(self)
        self.breakers: dict[str, Breaker] = {}
        self.whole = self._new_breaker("")

    def after_fork(self) -> None:
        """Start with closed circuits: other threads' calls are those of the parent process."""
        self._lock = threading.Lock()
        self._changes.clear()
        for breaker in list(self.breakers.values()):
            breaker.after_fork()

    @property
    def state(self) -> State:
        """The state of the worst part."""
        return max(self._states(), key=LEVELS.__getitem__)

    @property
    def is_open(self) -> bool:
        """True if no call but probes goes to the store, or to a part of it."""
        return not {"open", "half_open"}.isdisjoint(self._states())

    def outage(self) -> tuple[str, int] | None:
        """Why a circuit is open, and for how many nanoseconds from now; None if all are closed."""
        is_open = [
            one for one in list(self.breakers.values()) if one.state in ("open", "half_open")
        ]
        if not is_open:
            return None
        now_ns = self._time_ns()
        longest = max(is_open, key=lambda one: one.wait_ns(now_ns))
        return longest.reason, longest.wait_ns(now_ns)

    def on_change(self, callback: Callable[[Change], None]) -> None:
        """Call *callback* at each transition, in the call that caused it.

        It must not raise, nor take long.
        """
        self._listeners.append(callback)

    def breaker_of(self, key: str) -> Breaker:
        """The breaker of the part that *key* is in."""
        if self.part_of is None or type(key) is not str:
            return self.whole
        part = self.part_of(key)
        return self.breakers.get(part) or self._new_part(part)

    def breakers_of(self, operation: Operation[Any]) -> tuple[Breaker, ...]:
        """The breakers that *operation* passes: those of all parts that it concerns."""
        if self.part_of is None:
            return (self.whole,)
        found = dict.fromkeys([self.breaker_of(key) for key in keys_of(operation)])
        return tuple(found) or (self.whole,)

    def request(self, breakers: Sequence[Breaker]) -> Call:
        """Request a ticket of each breaker; raises `StoreError` if one rejects the call."""
        call = [(one, one.mark) for one in breakers]  # before the state: an old mark does no harm
        if all(one.is_closed for one in breakers):
            return call
        call.clear()
        with self._lock:
            for breaker in breakers:
                ticket = breaker.request(self._time_ns(), self._chance())
                if ticket is None:
                    self._abandon(call)
                    break
                call.append((breaker, ticket))
        self._report()
        if len(call) < len(breakers):
            self.metrics.rejected.add()
            raise self._rejection(breakers[len(call)])
        return call

    def succeeded(self, call: Call) -> None:
        """Record that *call* was answered."""
        self.metrics.calls.value += 1
        breaker, _ = call[0]
        if len(call) == 1 and breaker.is_closed and not breaker.failures:
            breaker.calls += 1  # two threads may count one: it is for a share and a message
            return
        with self._lock:
            for breaker, ticket in call:
                breaker.succeeded(ticket, self._time_ns(), self._chance())
        self._report()

    def failed(self, call: Call, error: BaseException | None) -> None:
        """Record that *call* raised *error*, or was interrupted by it."""
        if isinstance(error, Interrupted) and error.is_known:
            error = error.error
        reason = error.reason if isinstance(error, StoreError) else None
        if reason in ANSWERED or reason in COUNTED:
            self.metrics.count_error(reason)
        if error is None or reason in ANSWERED:
            self.succeeded(call)
            return
        with self._lock:
            if isinstance(error, StoreError) and reason in COUNTED:
                self._fail(call, error)
            else:
                self._abandon(call)
        self._report()

    def _fail(self, call: Call, error: StoreError) -> None:
        """Record that *call* failed: of several parts the one that failed before is the likely
        cause."""
        self.metrics.calls.value += 1
        now_ns = self._time_ns()
        suspects = [one for one in call if not one[0].is_closed] or call
        for breaker, ticket in suspects:
            breaker.failed(ticket, error, now_ns, self._chance())

    def _abandon(self, call: Call) -> None:
        """Return the tickets of *call*: there is no result."""
        for breaker, ticket in call:
            breaker.abandoned(ticket, self._time_ns())

    def _states(self) -> list[State]:
        """The state of each part. A part without calls is closed: a dead node has no keys."""
        breakers = list(self.breakers.values())
        if self.part_of is not None and not all(one.is_closed for one in breakers):
            with self._lock:
                now_ns = self._time_ns()
                for breaker in breakers:
                    breaker.close_unused(now_ns, UNUSED_NS)
            self._report()
        return [breaker.state for breaker in breakers]

    def _rejection(self, breaker: Breaker) -> StoreError:
        wait_ms = breaker.wait_ns(self._time_ns()) / MILLISECOND
        when = f"open for another {wait_ms:.0f} ms" if wait_ms else "not closed yet"
        return StoreError(
            f"the circuit of the store at {self.where} is {when} (last error: {breaker.reason})",
            reason="circuit_open",
        )

    def _new_part(self, part: str) -> Breaker:
        """The breaker of *part*; that of the whole store if there are too many parts."""
        with self._lock:
            if part not in self.breakers and len(self.breakers) >= MOST_PARTS:
                for name in [name for name, one in self.breakers.items() if one.is_closed]:
                    if name:  # nodes come and go
                        del self.breakers[name]
            if part not in self.breakers and len(self.breakers) >= MOST_PARTS:
                return self.whole
            return self.breakers.get(part) or self._new_breaker(part)

    def _new_breaker(self, part: str) -> Breaker:
        reporter, changes = _Reporter(self.where, part), self._changes  # no cycle by `self`
        breaker = Breaker(self._options, lambda change: changes.append((reporter, change)))
        self.breakers[part] = breaker
        return breaker

    def _report(self) -> None:
        """Report the transitions, outside the lock: a listener may call the store."""
        while self._changes:
            try:
                reporter, change = self._changes.pop(0)
            except IndexError:  # another thread reports it
                return
            reporter.report(change)
            for listener in list(self._listeners):
                listener(change)


# ---- metrics and log lines --------------------------------------------------------------------


class StoreMetrics:
    """The metrics of the store at *where*, whatever number of layers of this process use it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.users: WeakSet[StoreHealth] = WeakSet()
        self.calls = METRICS.counter("store_calls", "Calls made to the store.", store=where)
        self.rejected = METRICS.counter(
            "store_rejected", "Calls not made: the circuit was open.", store=where
        )
        METRICS.gauge(
            "store_breaker_state",
            "0: circuit closed; 1: half-open, some calls go to the store; 2: open.",
            self._level,
            store=where,
        )

    def count_error(self, reason: StoreFault) -> None:
        """Count a call that failed because of *reason*."""
        METRICS.counter(
            "store_errors", "Calls to the store that failed.", store=self.where, reason=reason
        ).add()

    def _level(self) -> float:
        return max((LEVELS[health.state] for health in list(self.users)), default=0)


_metrics: Final[WeakValueDictionary[str, StoreMetrics]] = WeakValueDictionary()


class _Reporter:
    """Counts the transitions of the breaker of *part*, "" for the whole store, and logs them: an
    outage when it begins, once a minute, and its end."""

    def __init__(self, where: str, part: str) -> None:
        self._store = where
        self._where = where if part in ("", where) else f"{where} (node {part})"
        self._warned_ns: int | None = None
        self._reported = (0, 0, 0)

    def report(self, change: Change) -> None:
        METRICS.counter(
            "breaker_transitions", "Transitions of the breaker.", store=self._store, to=change.after
        ).add()
        level = self._level(change)
        if not _log.isEnabledFor(level):
            return
        if level >= logging.WARNING:
            self._warned_ns = change.at_ns
        calls, failed, rejected = map(sub, change.counts, self._reported)
        self._reported = change.counts
        _log.log(
            level,
            "store %s: %s (since the last report: %d calls, %d failed, %d rejected)",
            self._where,
            _sentence(change, failed),
            calls,
            failed,
            rejected,
            extra={
                "event": f"store_breaker_{change.after}",
                "store": self._where,
                "reason": change.reason,
                "error": change.message,
                "lasts_seconds": None if change.lasts_ns is None else change.lasts_ns / SECOND,
                "down_seconds": change.down_ns / SECOND,
                "calls": calls,
                "failed": failed,
                "refused": rejected,
            },
        )

    def _level(self, change: Change) -> int:
        if change.after == "half_open":
            return logging.DEBUG
        if change.after != "open":
            return logging.INFO
        is_old = self._warned_ns is None or change.at_ns - self._warned_ns >= _REMINDER_NS
        return logging.WARNING if change.before != "half_open" or is_old else logging.DEBUG


def _sentence(change: Change, failed: int) -> str:
    lasts = (change.lasts_ns or 0) / MILLISECOND
    down = change.down_ns / SECOND
    why = f"{change.reason}: {change.message}" if change.message else change.reason
    match change.after, change.before:
        case "open", "half_open":
            return f"circuit open for another {lasts:.0f} ms, no reply for {down:.1f} s: {why}"
        case "open", _:
            return f"circuit open for {lasts:.0f} ms: {failed} calls failed, {why}"
        case "half_open", _:
            return "circuit half-open, one call probes the store"
        case "ramping", _:
            return f"answers again after {down:.1f} s; all calls go to it in {lasts:.0f} ms"
        case "closed", "open" | "half_open":
            return f"circuit closed after {down:.1f} s: no more calls, its keys have moved"
        case _:
            return f"circuit closed, {down:.1f} s after it opened"
