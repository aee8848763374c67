"""What both guarded stores share: the breakers, who may pass them, and who is told.

A store of several parts that fail on their own, as the nodes of a cluster do, says which part a key
is in: `part_of(key)`. Each part has a breaker then. Without it there is one for the whole.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, WeakValueDictionary

from headgate.errors import StoreError
from headgate.observability.metrics import MEASURES, Counter
from headgate.stores.layers.circuit_breaker.breaker import ANSWERED, COUNTED, Breaker, Change, State
from headgate.stores.operations import GrantLease, PublishValue, TakeEach
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from headgate.errors import StoreFault
    from headgate.stores.layers.circuit_breaker.breaker import BreakerTerms
    from headgate.stores.operations import Operation


# What operators see of a guarded store: a line in the log at each transition, and measures.


_log: Final = logging.getLogger("headgate.store")

LEVELS: Final[dict[State, int]] = {"closed": 0, "half_open": 1, "ramping": 1, "open": 2}
"""What the gauge says; of several parts and guards of one store the worst."""
_REMINDER_NS: Final = 60 * SECOND


class Board:
    """All guards of this process that guard the store called *where*."""

    def __init__(self, where: str) -> None:
        self.guards: WeakSet[Guard] = WeakSet()
        self.calls = 0
        """How many were made. Counted without a lock, in one step without a call in between, which
        no other thread interrupts."""
        MEASURES.tally("store_calls", "Calls made to the store.", self.made, store=where)
        MEASURES.gauge(
            "store_breaker_state",
            "0: calls go to the store; 1: some do, to try it; 2: none do.",
            self.level,
            store=where,
        )

    def made(self) -> float:
        return self.calls

    def level(self) -> float:
        return max((LEVELS[guard.state] for guard in list(self.guards)), default=0)


_boards: Final[WeakValueDictionary[str, Board]] = WeakValueDictionary()


class Telling:
    """Counts, and puts into words, what happens to the store called *where*."""

    def __init__(self, where: str, guard: Guard) -> None:
        self.where = where
        self.refused = MEASURES.counter(
            "store_refused", "Calls not made: the store had been failing.", store=where
        )
        self._errors: dict[StoreFault, Counter] = {}
        self._transitions: dict[State, Counter] = {}
        self._warned_ns: dict[str, int] = {}
        self._untold: dict[str, tuple[int, int, int]] = {}
        self.board = _boards.get(where) or _boards.setdefault(where, Board(where))
        self.board.guards.add(guard)

    def error(self, reason: StoreFault) -> None:
        """A call failed because of *reason*."""
        counter = self._errors.get(reason)
        if counter is None:
            counter = self._errors[reason] = MEASURES.counter(
                "store_errors", "Calls to the store that failed.", store=self.where, reason=reason
            )
        counter.add()

    def change(self, part: str, change: Change) -> None:
        """The breaker of *part*, "" for the whole, has changed."""
        counter = self._transitions.get(change.after)
        if counter is None:
            counter = self._transitions[change.after] = MEASURES.counter(
                "breaker_transitions", "Transitions of the breaker.", store=self.where,
                to=change.after,
            )  # fmt: skip
        counter.add()
        counts = (change.calls, change.failed, change.refused)
        counts = tuple(map(sum, zip(counts, self._untold.get(part, (0, 0, 0)), strict=True)))  # type: ignore[assignment] # three
        level = self._level(part, change)
        if not _log.isEnabledFor(level):
            self._untold[part] = counts
            return
        self._untold.pop(part, None)
        if level >= logging.WARNING:
            self._warned_ns[part] = change.at_ns
        where = self.where if part in ("", self.where) else f"{self.where} (its part {part})"
        self._log(level, where, change, counts)

    def _level(self, part: str, change: Change) -> int:
        """How loud: an outage is told when it begins, once a minute, and when it ends."""
        if change.after == "half_open":
            return logging.DEBUG
        if change.after != "open":
            return logging.INFO
        is_news = change.before != "half_open"
        told_ns = self._warned_ns.get(part)
        is_old = told_ns is None or change.at_ns - told_ns >= _REMINDER_NS
        return logging.WARNING if is_news or is_old else logging.DEBUG

    def _log(self, level: int, where: str, change: Change, counts: tuple[int, int, int]) -> None:
        _log.log(
            level,
            "the store at %s %s; since this was last told: %d calls, %d failed, %d refused",
            where,
            _sentence(change),
            *counts,
            extra={
                "event": f"store_breaker_{change.after}",
                "store": where,
                "reason": change.reason,
                "lasts_seconds": None if change.lasts_ns is None else change.lasts_ns / SECOND,
                "down_seconds": change.down_ns / SECOND,
                "calls": counts[0],
                "failed": counts[1],
                "refused": counts[2],
            },
        )


def _sentence(change: Change) -> str:
    lasts = (change.lasts_ns or 0) / SECOND
    down = change.down_ns / SECOND
    match change.after, change.before:
        case "open", "half_open":
            return (
                f"still fails after {down:.1f} s ({change.reason}): "
                f"it is left alone for {lasts:.2f} s more"
            )
        case "open", _:
            return f"fails ({change.reason}): it is left alone for {lasts:.2f} s"
        case "half_open", _:
            return "is asked again, by one call"
        case "ramping", _:
            return f"answers after {down:.1f} s: within {lasts:.2f} s all calls will go to it again"
        case "closed", "open" | "half_open":
            return (
                f"is not asked any more, {down:.1f} s after it began to fail: others have its keys"
            )
        case _:
            return f"is in full use again, {down:.1f} s after it began to fail"


MOST_PARTS: Final = 64
"""How many parts of a store have a breaker of their own; the others share one."""
DESERTED_NS: Final = 3 * SECOND
"""A part that nobody has asked for so long is no longer one: its keys have gone to another."""


class Guard:
    """The breakers of one store, called *where*. Safe to share among threads.

    Locks are taken only where something has failed. *time_ns* is a clock that never goes back.
    """

    def __init__(
        self,
        where: str,
        part_of: Callable[[str], str] | None,
        terms: BreakerTerms,
        time_ns: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self.where = where
        self.part_of = part_of
        self._terms = terms
        self._time_ns = time_ns
        self._chance = chance
        self.breakers: dict[str, Breaker] = {}
        self._listeners: tuple[Callable[[Change], None], ...] = ()
        self._lock = threading.Lock()
        self._changes: list[tuple[str, Change]] = []
        self.whole = self._new_breaker("")
        self.telling = Telling(where, self)
        self.board = self.telling.board

    def after_fork(self) -> None:
        """After a fork: what other threads were about to find out, they find out elsewhere."""
        self._lock = threading.Lock()
        self._changes.clear()
        for breaker in list(self.breakers.values()):
            breaker.after_fork()

    @property
    def state(self) -> State:
        """That of the worst part."""
        return max(self._states(), key=LEVELS.__getitem__)

    @property
    def is_open(self) -> bool:
        """Whether no call goes to the store, or to a part of it, but probes."""
        states = self._states()
        return "open" in states or "half_open" in states

    @property
    def is_calm(self) -> bool:
        """Whether all calls go to all parts."""
        return self.whole.is_closed if self.part_of is None else set(self._states()) == {"closed"}

    @property
    def since_ns(self) -> int | None:
        """Since when the part has failed that failed first, on the guard's clock; None: none has.

        A part that is asked again has failed until all calls go to it.
        """
        self._forget_deserted()
        found = [breaker.since_ns for breaker in list(self.breakers.values())]
        return min((since for since in found if since is not None), default=None)

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Have *callback* called at each transition; what is returned undoes this."""
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

    def passing(self, operation: Operation[Any]) -> Passage:
        """The way of *operation* to the store, as a context."""
        if self.part_of is None:
            return Passage(self, (self.whole,))
        found = dict.fromkeys(self.breaker_of(key) for key in keys_of(operation))
        return Passage(self, tuple(found) or (self.whole,))

    def enter(self, breakers: Sequence[Breaker]) -> list[int]:
        """A ticket of each; raises `StoreError` if one refuses."""
        tickets: list[int] = []
        with self._lock:
            for breaker in breakers:
                ticket = breaker.admit(self._time_ns(), self._chance())
                if ticket is None:
                    for one, given in zip(breakers, tickets, strict=False):
                        one.abandoned(given, self._time_ns())
                    error = self._refusal(breaker)
                    break
                tickets.append(ticket)
            else:
                error = None
        self._tell()
        if error is not None:
            self.telling.refused.add()
            raise error
        return tickets

    def answered(self, breaker: Breaker, ticket: int) -> None:
        """The call with this *ticket* was answered: the way that costs next to nothing."""
        if breaker.is_closed and not breaker.failures:
            breaker.calls += 1  # two threads may count one: it is for a share and a message
            self.board.calls += 1
        else:
            self.succeeded((breaker,), (ticket,))

    def succeeded(self, breakers: Iterable[Breaker], tickets: Iterable[int]) -> None:
        """The calls with these *tickets* were answered."""
        self.board.calls += 1
        with self._lock:
            for breaker, ticket in zip(breakers, tickets, strict=True):
                breaker.succeeded(ticket, self._time_ns(), self._chance())
        self._tell()

    def failed(
        self, breakers: Sequence[Breaker], tickets: Sequence[int], reason: StoreFault
    ) -> None:
        """The calls with these *tickets* ended in an error because of *reason*."""
        if reason in ANSWERED:
            self.telling.error(reason)
            self.succeeded(breakers, tickets)
            return
        if reason not in COUNTED:
            self.abandoned(breakers, tickets)
            return
        self.board.calls += 1
        self.telling.error(reason)
        with self._lock:
            now_ns = self._time_ns()
            # Of several parts it was rather one that has failed before.
            suspects = {one for one in breakers if not one.is_closed} or set(breakers)
            for breaker, ticket in zip(breakers, tickets, strict=True):
                if breaker in suspects:
                    breaker.failed(ticket, reason, now_ns, self._chance())
        self._tell()

    def abandoned(self, breakers: Iterable[Breaker], tickets: Iterable[int]) -> None:
        """Nobody knows what came of the calls with these *tickets*."""
        with self._lock:
            for breaker, ticket in zip(breakers, tickets, strict=True):
                breaker.abandoned(ticket, self._time_ns())

    def _states(self) -> list[State]:
        self._forget_deserted()
        return [breaker.state for breaker in list(self.breakers.values())]

    def _forget_deserted(self) -> None:
        """Close what nobody asks for: after a failover a dead node has no keys any more."""
        if self.part_of is None or all(one.is_closed for one in list(self.breakers.values())):
            return
        with self._lock:
            now_ns = self._time_ns()
            for breaker in self.breakers.values():
                if breaker.is_deserted(now_ns, DESERTED_NS):
                    breaker.desert(now_ns)
        self._tell()

    def _refusal(self, breaker: Breaker) -> StoreError:
        wait_ms = breaker.wait_ns(self._time_ns()) / MILLISECOND
        when = f"it is asked again in {wait_ms:.0f} ms" if wait_ms else "only some calls go to it"
        return StoreError(
            f"the store at {self.where} has been failing ({breaker.reason}): {when}",
            reason="circuit_open",
        )

    def _part(self, part: str) -> Breaker:
        with self._lock:
            found = self.breakers.get(part)
            if found is not None:
                return found
            if len(self.breakers) >= MOST_PARTS:
                self._forget_idle()
            if len(self.breakers) >= MOST_PARTS:
                return self.whole
            return self._new_breaker(part)

    def _forget_idle(self) -> None:
        """Nodes come and go: those that are in order can be forgotten."""
        for part, breaker in list(self.breakers.items()):
            if part and breaker.is_closed:
                del self.breakers[part]

    def _new_breaker(self, part: str) -> Breaker:
        breaker = Breaker(self._terms, lambda change: self._changes.append((part, change)))
        self.breakers[part] = breaker
        return breaker

    def _tell(self) -> None:
        """Tell of the transitions, outside the lock: whoever listens may ask the store."""
        while self._changes:
            try:
                part, change = self._changes.pop(0)
            except IndexError:  # another thread tells it
                return
            self.telling.change(part, change)
            for listener in self._listeners:
                listener(change)


class Passage:
    """The way of one call past one or more *breakers*. What the call raises, or not, is noted.

    Entering raises `StoreError` if one of them refuses. Serves blocking calls and awaited ones
    alike: a caller that is cancelled, or dies, gives its tickets back.
    """

    __slots__ = ("_guard", "breakers", "tickets")

    def __init__(self, guard: Guard, breakers: tuple[Breaker, ...]) -> None:
        self._guard = guard
        self.breakers = breakers
        self.tickets: list[int] = []

    def __enter__(self) -> Passage:
        self.tickets = self._guard.enter(self.breakers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._guard.succeeded(self.breakers, self.tickets)
        elif isinstance(error, StoreError):
            self._guard.failed(self.breakers, self.tickets, error.reason)
        else:
            self._guard.abandoned(self.breakers, self.tickets)


def keys_of(operation: Operation[Any]) -> Iterable[str]:
    """The keys of all counters that *operation* is about."""
    if isinstance(operation, TakeEach):
        return [check.key for take in operation.takes for check in take.checks]
    if isinstance(operation, GrantLease):
        return (operation.check.key,)
    if isinstance(operation, PublishValue):
        return (operation.key,)
    checks: Sequence[Any] = getattr(operation, "checks", ())
    return [check.key for check in checks]
