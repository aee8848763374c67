"""Watch a store that is gone, so that its outage ends even without requests.

Requests find out themselves that the store is back. A process without requests peeks at the store
every one or two seconds: so its outage ends, and its usage is reported. A peek is a call like any
other, which the circuit breaker may reject: the store is not called more often than its breaker
allows.

One thread watches all stores of threads, while any of them needs it; timers watch those of event
loops.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.fork import watch_forks

if TYPE_CHECKING:
    from typing import Protocol

    from headgate.stores.base import Store
    from headgate.stores.operations import Take

    class Watched(Protocol):
        """Something that knows of a store that is gone, or has usage to report."""

        @property
        def needs_watch(self) -> bool:
            """True if the store has to be watched."""

        def next_look(self) -> Take | None:
            """The peek to make now; None if there is no need."""

        def succeed(self) -> None:
            """Record that the store has answered."""


_RANDOM: Final = SystemRandom()
"""Not the generator of the application: a thread must not change its sequence."""

SHORTEST: Final = 1.0
LONGEST: Final = 2.0
"""Seconds between two peeks."""


class Watch:
    """Watches *store* for *watched*. Keeps neither of them alive."""

    def __init__(self, store: Store, watched: Watched) -> None:
        self._store: weakref.ref[Any] = weakref.ref(store)
        self._watched: weakref.ref[Watched] = weakref.ref(watched)
        self.is_on = False
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._looking: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Watch until there is no need: in the running event loop, or by a thread."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if not self.is_on:
                _WATCHERS.add(self)
            return
        if loop not in self._loops:
            self._loops.add(loop)
            _call_later(loop, weakref.ref(self))

    @property
    def is_needed(self) -> bool:
        watched = self._watched()
        return watched is not None and watched.needs_watch

    def look(self) -> None:
        """Peek at the store, if there is a need."""
        watched, store = self._watched(), self._store()
        look = None if watched is None or store is None else watched.next_look()
        if watched is None or store is None or look is None:
            return
        self.is_on = False  # if it raises what it must not, the next caller begins again
        try:
            store.run(look)
        except StoreError:
            pass  # as the breaker knows
        else:
            watched.succeed()
        self.is_on = True

    def come_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """Peek in *loop*, and again later if there is a need."""
        self._loops.discard(loop)  # before it is asked: a caller in between begins again
        if not self.is_needed:
            return
        task = loop.create_task(self._look_in_loop())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)
        self.begin()

    async def _look_in_loop(self) -> None:
        watched, store = self._watched(), self._store()
        look = None if watched is None or store is None else watched.next_look()
        if watched is None or store is None or look is None:
            return
        try:
            await store.arun(look)
        except StoreError:
            return
        watched.succeed()


class Watchers:
    """All watches of stores of threads, and the thread that peeks."""

    def __init__(self) -> None:
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin as a new process, without the thread."""
        self._lock = threading.Lock()
        self._all: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        with self._lock:
            watch.is_on = True
            self._all.add(watch)
            if self._thread is None or not self._thread.is_alive():  # a store may raise anything
                self._thread = threading.Thread(
                    target=self._keep_looking, name="headgate-watch", daemon=True
                )
                self._thread.start()

    def _keep_looking(self) -> None:
        while True:
            time.sleep(_RANDOM.uniform(SHORTEST, LONGEST))
            with self._lock:
                watches = [watch for watch in list(self._all) if self._is_left(watch)]
                if not watches:
                    self._thread = None
                    return
            while watches:
                watches.pop().look()

    def _is_left(self, watch: Watch) -> bool:
        watch.is_on = False  # before it is asked: a caller in between adds it again
        watch.is_on = watch.is_needed
        if not watch.is_on:
            self._all.discard(watch)
        return watch.is_on


def _call_later(loop: asyncio.AbstractEventLoop, ref: weakref.ref[Watch]) -> None:
    def look() -> None:
        watch = ref()
        if watch is not None:
            watch.come_due(loop)

    loop.call_later(_RANDOM.uniform(SHORTEST, LONGEST), look)


_WATCHERS: Final = Watchers()
