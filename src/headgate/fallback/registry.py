"""The fallback of each store: one for all who use the store in this process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from headgate.fallback.fallback import Fallback
from headgate.stores.forking import watch_forks

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.fallback.fallback import Guard
    from headgate.stores.port import AsyncStore, Store


class Registry:
    """Fallbacks by store. A fallback keeps its store, so as long as there is one, no other store
    can be mistaken for it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Fallback] = WeakValueDictionary()
        self.begin_anew()
        watch_forks(self)

    def of(self, store: Store | AsyncStore, clock: Clock | None, guard: Guard | None) -> Fallback:
        with self._lock:
            found = self._known.get(id(store))
            if found is None:
                found = self._known[id(store)] = Fallback(store, clock)
                if guard is not None:
                    found.listen(guard)
        return found

    def begin_anew(self) -> None:
        """This is another process now, in which only one thread is left."""
        self._lock = threading.Lock()


_registry = Registry()


def fallback_of(
    store: Store | AsyncStore, clock: Clock | None = None, guard: Guard | None = None
) -> Fallback:
    """The fallback of *store*; if it is new, it goes by *clock*, and *guard* tells it when the
    store is back."""
    return _registry.of(store, clock, guard)
