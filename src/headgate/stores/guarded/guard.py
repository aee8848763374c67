"""What both guarded stores share: the breakers, who may pass them, and who is told.

A store of several parts that fail on their own, as the nodes of a cluster do, says which part a key
is in: `part_of(key)`. Each part has a breaker then. Without it there is one for the whole.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.stores.guarded.breaker import ANSWERED, COUNTED, Breaker, Change, State
from headgate.stores.guarded.telling import LEVELS, Telling
from headgate.stores.operations import Draw, Lend, Pour, Share, TakeEach
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from headgate.errors import StoreFault
    from headgate.stores.guarded.breaker import BreakerTerms
    from headgate.stores.operations import Operation

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

    def begin_anew(self) -> None:
        """After a fork: what other threads were about to find out, they find out elsewhere."""
        self._lock = threading.Lock()
        self._changes.clear()
        for breaker in list(self.breakers.values()):
            breaker.begin_anew()

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
    if isinstance(operation, Lend):
        return (operation.check.key,)
    if isinstance(operation, Pour | Draw | Share):
        return (operation.key,)
    checks: Sequence[Any] = getattr(operation, "checks", ())
    return [check.key for check in checks]
