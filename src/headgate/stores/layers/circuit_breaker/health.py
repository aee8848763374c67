"""The health of one store: its circuit breakers, metrics and log lines.

A store of several parts that fail on their own, as the nodes of a cluster do, names the part of a
key: `part_of(key)`. Each part has a breaker then. Otherwise there is one for the whole store.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, WeakValueDictionary

from headgate.errors import StoreError
from headgate.observability.metrics import MEASURES, Counter
from headgate.runtime.effects import Interrupted
from headgate.stores.layers.circuit_breaker.breaker import ANSWERED, COUNTED, Breaker, Change, State
from headgate.stores.operations import GrantLease, PublishValue, TakeEach
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

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
        self.breakers: dict[str, Breaker] = {}
        self._listeners: tuple[Callable[[Change], None], ...] = ()
        self._lock = threading.Lock()
        self._changes: list[tuple[str, Change]] = []
        self.whole = self._new_breaker("")
        self.metrics = _metrics_of(where)
        self.metrics.users.add(self)
        self._reporter = _Reporter(self.metrics)

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
        states = self._states()
        return "open" in states or "half_open" in states

    @property
    def since_ns(self) -> int | None:
        """The time at which the circuit opened that opened first; None if all are closed.

        On the clock of the breakers. A circuit counts as open until all calls go to the store.
        """
        self._close_unused()
        found = [breaker.since_ns for breaker in list(self.breakers.values())]
        return min((since for since in found if since is not None), default=None)

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call *callback* at each transition; returns how to stop that."""
        self._listeners = (*self._listeners, callback)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not callback)

        return forget

    def breaker_of(self, key: str) -> Breaker:
        """The breaker of the part that *key* is in."""
        if self.part_of is None or type(key) is not str:
            return self.whole
        part = self.part_of(key)
        return self.breakers.get(part) or self._part(part)

    def attempt(self, operation: Operation[Any]) -> Attempt:
        """An attempt at *operation*, as a context."""
        if self.part_of is None:
            return Attempt(self, (self.whole,))
        found = dict.fromkeys(self.breaker_of(key) for key in keys_of(operation))
        return Attempt(self, tuple(found) or (self.whole,))

    def request(self, breakers: Sequence[Breaker]) -> list[int]:
        """A ticket of each breaker; raises `StoreError` if one rejects the call."""
        tickets: list[int] = []
        with self._lock:
            for breaker in breakers:
                ticket = breaker.request(self._time_ns(), self._chance())
                if ticket is None:
                    for one, given in zip(breakers, tickets, strict=False):
                        one.abandoned(given, self._time_ns())
                    error = self._rejection(breaker)
                    break
                tickets.append(ticket)
            else:
                error = None
        self._report()
        if error is not None:
            self.metrics.rejected.add()
            raise error
        return tickets

    def answered(self, breaker: Breaker, ticket: int) -> None:
        """Record that a call was answered: the fast path of `succeeded`."""
        if breaker.is_closed and not breaker.failures:
            breaker.calls += 1  # two threads may count one: it is for a share and a message
            self.metrics.calls += 1
        else:
            self.succeeded((breaker,), (ticket,))

    def succeeded(self, breakers: Iterable[Breaker], tickets: Iterable[int]) -> None:
        """Record that the call with these *tickets* was answered."""
        self.metrics.calls += 1
        with self._lock:
            for breaker, ticket in zip(breakers, tickets, strict=True):
                breaker.succeeded(ticket, self._time_ns(), self._chance())
        self._report()

    def failed(
        self, breakers: Sequence[Breaker], tickets: Sequence[int], error: BaseException | None
    ) -> None:
        """Record that the call with these *tickets* raised *error*, or was interrupted by it."""
        if isinstance(error, Interrupted) and error.is_known:
            error = error.error
            if error is None:
                self.succeeded(breakers, tickets)
                return
        reason = error.reason if isinstance(error, StoreError) else None
        if reason in ANSWERED:
            self.metrics.error(reason).add()
            self.succeeded(breakers, tickets)
        elif isinstance(error, StoreError) and error.reason in COUNTED:
            self._failed(breakers, tickets, error)
        else:
            self.abandoned(breakers, tickets)

    def abandoned(self, breakers: Iterable[Breaker], tickets: Iterable[int]) -> None:
        """Record that the result of the call with these *tickets* is unknown."""
        with self._lock:
            for breaker, ticket in zip(breakers, tickets, strict=True):
                breaker.abandoned(ticket, self._time_ns())

    def _failed(
        self, breakers: Sequence[Breaker], tickets: Sequence[int], error: StoreError
    ) -> None:
        self.metrics.calls += 1
        self.metrics.error(error.reason).add()
        with self._lock:
            now_ns = self._time_ns()
            # Of several parts the one that failed before is the likely cause.
            suspects = {one for one in breakers if not one.is_closed} or set(breakers)
            for breaker, ticket in zip(breakers, tickets, strict=True):
                if breaker in suspects:
                    breaker.failed(ticket, error, now_ns, self._chance())
        self._report()

    def _states(self) -> list[State]:
        self._close_unused()
        return [breaker.state for breaker in list(self.breakers.values())]

    def _close_unused(self) -> None:
        """Close the circuits of parts without calls: after a failover a dead node has no keys."""
        if self.part_of is None or all(one.is_closed for one in list(self.breakers.values())):
            return
        with self._lock:
            now_ns = self._time_ns()
            for breaker in self.breakers.values():
                if breaker.is_unused(now_ns, UNUSED_NS):
                    breaker.close_unused(now_ns)
        self._report()

    def _rejection(self, breaker: Breaker) -> StoreError:
        wait_ms = breaker.wait_ns(self._time_ns()) / MILLISECOND
        when = f"open for another {wait_ms:.0f} ms" if wait_ms else "not closed yet"
        return StoreError(
            f"the circuit of the store at {self.where} is {when} (last error: {breaker.reason})",
            reason="circuit_open",
        )

    def _part(self, part: str) -> Breaker:
        with self._lock:
            found = self.breakers.get(part)
            if found is not None:
                return found
            if len(self.breakers) >= MOST_PARTS:
                self._forget_closed()
            if len(self.breakers) >= MOST_PARTS:
                return self.whole
            return self._new_breaker(part)

    def _forget_closed(self) -> None:
        """Nodes come and go: a closed circuit can be forgotten."""
        for part, breaker in list(self.breakers.items()):
            if part and breaker.is_closed:
                del self.breakers[part]

    def _new_breaker(self, part: str) -> Breaker:
        breaker = Breaker(self._options, lambda change: self._changes.append((part, change)))
        self.breakers[part] = breaker
        return breaker

    def _report(self) -> None:
        """Report the transitions, outside the lock: a listener may call the store."""
        while self._changes:
            try:
                part, change = self._changes.pop(0)
            except IndexError:  # another thread reports it
                return
            self._reporter.report(part, change)
            for listener in self._listeners:
                listener(change)


class Attempt:
    """The attempt at one call past one or more *breakers*, which record its result.

    Entering raises `StoreError` if one of them rejects the call. *error* is the result of the call
    if it is an error that is not raised. A caller that is cancelled gives its tickets back.
    """

    __slots__ = ("_health", "breakers", "error", "tickets")

    def __init__(self, health: StoreHealth, breakers: tuple[Breaker, ...]) -> None:
        self._health = health
        self.breakers = breakers
        self.tickets: list[int] = []
        self.error: StoreError | None = None

    def __enter__(self) -> Attempt:
        self.tickets = self._health.request(self.breakers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        error = self.error or error
        if error is None:
            self._health.succeeded(self.breakers, self.tickets)
        else:
            self._health.failed(self.breakers, self.tickets, error)


def keys_of(operation: Operation[Any]) -> Iterable[str]:
    """The keys of all counters of *operation*."""
    if isinstance(operation, TakeEach):
        return [check.key for take in operation.takes for check in take.checks]
    if isinstance(operation, GrantLease):
        return (operation.check.key,)
    if isinstance(operation, PublishValue):
        return (operation.key,)
    checks: Sequence[Any] = getattr(operation, "checks", ())
    return [check.key for check in checks]


# ---- metrics and log lines --------------------------------------------------------------------


class StoreMetrics:
    """The metrics of the store at *where*, whatever number of layers of this process use it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.users: WeakSet[StoreHealth] = WeakSet()
        self.calls = 0
        """Counted without a lock, in one step without a call in between, which no other thread
        interrupts."""
        self.rejected = MEASURES.counter(
            "store_refused", "Calls not made: the circuit was open.", store=where
        )
        self._errors: dict[StoreFault, Counter] = {}
        self._transitions: dict[State, Counter] = {}
        MEASURES.tally("store_calls", "Calls made to the store.", self._calls, store=where)
        MEASURES.gauge(
            "store_breaker_state",
            "0: circuit closed; 1: half-open, some calls go to the store; 2: open.",
            self._level,
            store=where,
        )

    def error(self, reason: StoreFault) -> Counter:
        """The counter of calls that failed because of *reason*."""
        if reason not in self._errors:
            self._errors[reason] = MEASURES.counter(
                "store_errors", "Calls to the store that failed.", store=self.where, reason=reason
            )
        return self._errors[reason]

    def transition(self, state: State) -> Counter:
        """The counter of transitions to *state*."""
        if state not in self._transitions:
            self._transitions[state] = MEASURES.counter(
                "breaker_transitions", "Transitions of the breaker.", store=self.where, to=state
            )
        return self._transitions[state]

    def _calls(self) -> float:
        return self.calls

    def _level(self) -> float:
        return max((LEVELS[health.state] for health in list(self.users)), default=0)


_metrics: Final[WeakValueDictionary[str, StoreMetrics]] = WeakValueDictionary()


def _metrics_of(where: str) -> StoreMetrics:
    return _metrics.get(where) or _metrics.setdefault(where, StoreMetrics(where))


class _Reporter:
    """Counts transitions, and logs them: an outage when it begins, once a minute, and its end."""

    def __init__(self, metrics: StoreMetrics) -> None:
        self._metrics = metrics
        self._warned_ns: dict[str, int] = {}
        self._unreported: dict[str, tuple[int, ...]] = {}

    def report(self, part: str, change: Change) -> None:
        """Report that the breaker of *part*, "" for the whole store, has changed."""
        self._metrics.transition(change.after).add()
        before = self._unreported.pop(part, (0, 0, 0))
        new = (change.calls, change.failed, change.rejected)
        counts = tuple(map(sum, zip(before, new, strict=True)))
        level = self._level(part, change)
        if not _log.isEnabledFor(level):
            self._unreported[part] = counts
            return
        if level >= logging.WARNING:
            self._warned_ns[part] = change.at_ns
        where = self._metrics.where
        if part not in ("", where):
            where = f"{where} (node {part})"
        _log.log(
            level,
            "store %s: %s (since the last report: %d calls, %d failed, %d rejected)",
            where,
            _sentence(change),
            *counts,
            extra={
                "event": f"store_breaker_{change.after}",
                "store": where,
                "reason": change.reason,
                "error": change.message,
                "lasts_seconds": None if change.lasts_ns is None else change.lasts_ns / SECOND,
                "down_seconds": change.down_ns / SECOND,
                "calls": counts[0],
                "failed": counts[1],
                "refused": counts[2],
            },
        )

    def _level(self, part: str, change: Change) -> int:
        if change.after == "half_open":
            return logging.DEBUG
        if change.after != "open":
            return logging.INFO
        warned_ns = self._warned_ns.get(part)
        is_old = warned_ns is None or change.at_ns - warned_ns >= _REMINDER_NS
        return logging.WARNING if change.before != "half_open" or is_old else logging.DEBUG


def _sentence(change: Change) -> str:
    lasts = (change.lasts_ns or 0) / MILLISECOND
    down = change.down_ns / SECOND
    why = f"{change.reason}: {change.message}" if change.message else change.reason
    match change.after, change.before:
        case "open", "half_open":
            return f"circuit open for another {lasts:.0f} ms, no reply for {down:.1f} s: {why}"
        case "open", _:
            return f"circuit open for {lasts:.0f} ms: {change.failed} calls failed, {why}"
        case "half_open", _:
            return "circuit half-open, one call probes the store"
        case "ramping", _:
            return f"answers again after {down:.1f} s; all calls go to it in {lasts:.0f} ms"
        case "closed", "open" | "half_open":
            return f"circuit closed after {down:.1f} s: no more calls, its keys have moved"
        case _:
            return f"circuit closed, {down:.1f} s after it opened"
