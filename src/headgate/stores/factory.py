"""From a URL to a store, and from a store to the layers that limiters use in front of it.

A store that waits for a server gets a circuit breaker and, if it grants leases, the layer for them,
and between the two, once a group of counters is split, the layer for that. A store in this process,
or in the shared memory of this machine, is used as it is: it has no round trip to save, no shards.
The layers are imported for the first store that needs them.
"""

from __future__ import annotations

import re
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from headgate.errors import OptionError, StoreURLError, nearest
from headgate.fork import watch_forks
from headgate.stores.base import Layer, Store
from headgate.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.stores.base import Accuracies
    from headgate.stores.layers.circuit_breaker.health import StoreHealth

_SCHEME: Final = re.compile("([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_REDIS: Final = tuple(
    f"{server}{topology}"
    for server in ("redis", "rediss", "valkey", "valkeys")
    for topology in ("", "+sentinel", "+cluster")
)
SCHEMES: Final = ("memory", "shm", *_REDIS, "unix")
"""The schemes of store URLs."""


def open_store(store: str | Store, clock: Clock | None) -> Store:
    """*store* itself, or the one its URL names, on *clock* if one is given."""
    if isinstance(store, str):
        scheme = _scheme(store)
        return (_memory if scheme == "memory" else _backend(scheme))(store, clock=clock)
    if not isinstance(store, Store):
        raise StoreURLError(
            f"the store is {store!r}; expected a URL such as 'memory://' or a Store"
        )
    if clock is not None:
        raise OptionError("give the clock to the store, not to the limiter, when you make both")
    return store


class StoreRegistry:
    """The layers in front of each store that is in use.

    There is one stack of layers for each store, so that all who use a store in this process share
    its circuit breaker and its leases. A stack keeps its store alive, so its id stays its own.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Store] = WeakValueDictionary()
        self._accuracies: WeakKeyDictionary[Store, WeakKeyDictionary[object, Accuracies]]
        self._accuracies = WeakKeyDictionary()
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have had it."""
        self._lock = threading.Lock()

    def wrapped(self, store_or_url: str | Store, clock: Clock | None) -> Store:
        """The layers in front of a store, which may be named by its URL; the store itself if it
        needs none."""
        store = open_store(store_or_url, clock)
        if not store.may_fail or not store.waits:
            return store
        from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
        from headgate.stores.layers.leases import LeasedStore

        if isinstance(store, LeasedStore):
            return store
        with self._lock:
            found = self._known.get(id(store))
            if found is None:
                is_guarded = isinstance(store, CircuitBreakerStore)
                found = store if is_guarded else CircuitBreakerStore(store)
                found = LeasedStore(found) if store.grants_leases else found
                self._known[id(store)] = found
        return found

    def set_accuracies(self, store: Store, user: object, accuracies: Accuracies) -> None:
        """Set the *accuracies* of *user* in *store*, beside those of other users.

        If two users have an accuracy for one group, the later one wins.
        """
        with self._lock:
            of_store = self._accuracies.setdefault(store, WeakKeyDictionary())
            if of_store.get(user, {}) == accuracies:
                return
            of_store[user] = accuracies
            together = {group: own for one in of_store.values() for group, own in one.items()}
            if any(own.split > 1 for own in together.values()):
                _split(store)
            store.set_accuracies(together)


def _split(store: Store) -> None:
    """Put the layer for split groups behind the leases of *store*, if it has leases."""
    from headgate.stores.layers.leases import LeasedStore
    from headgate.stores.layers.split import SplitStore

    if isinstance(store, LeasedStore) and not isinstance(store.inner, SplitStore):
        store.inner = SplitStore(store.inner)


_registry: Final = StoreRegistry()
wrapped: Final = _registry.wrapped
set_accuracies: Final = _registry.set_accuracies


def unwrapped(store: Store) -> Store:
    """The store behind the layers of `wrapped`."""
    if not isinstance(store, Layer):
        return store
    from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
    from headgate.stores.layers.leases import LeasedStore
    from headgate.stores.layers.split import SplitStore

    while isinstance(store, LeasedStore | SplitStore | CircuitBreakerStore):
        store = store.inner
    return store


def health_of(store: Store) -> StoreHealth | None:
    """The health of *store* as its circuit breaker sees it; None if it has none."""
    if not isinstance(store, Layer):
        return None
    from headgate.stores.layers.circuit_breaker import CircuitBreakerStore

    found: Store | None = store
    while isinstance(found, Layer):
        if isinstance(found, CircuitBreakerStore):
            return found.health
        found = found.inner
    return None


def _scheme(url: str) -> str:
    """Return the scheme of *url*, if there is a store for it."""
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme in SCHEMES:
        return scheme
    near = nearest(scheme, SCHEMES)
    hint = "." if near is None else f"; did you mean '{near}://'?"
    # Without what may be a password.
    shown = repr(re.sub("//.*@", "//***@", url, flags=re.DOTALL))
    raise StoreURLError(
        f"cannot open the store {shown}{hint} Expected memory://, shm://, redis://, "
        "rediss://, unix://, redis+sentinel:// or redis+cluster:// (or valkey in place of redis)"
    )


def _backend(scheme: str) -> Callable[..., Store]:
    """Import the store for *scheme*. Raises `StoreURLError` if what it needs is not there."""
    try:
        if scheme == "shm":
            return cast("type[Store]", import_module("headgate.stores.shm").ShmStore)
        return cast("type[Store]", import_module("headgate.stores.redis").RedisStore)
    except ModuleNotFoundError as error:
        if error.name == "fcntl":
            needs = (
                "shm:// needs locks on files as Unix has them: there are none here, use redis://"
            )
        elif error.name == "hiredis":
            needs = "a Redis store needs the package 'hiredis': pip install 'headgate[redis]'"
        else:
            raise
        raise StoreURLError(needs) from error


def _memory(url: str, clock: Clock | None) -> MemoryStore:
    from headgate.server_urls import URLReader

    reader = URLReader("memory", StoreURLError)
    authority, path, pairs = reader.split(url.partition(":")[2].removeprefix("//"))
    if authority or path.strip("/"):
        raise reader.wrong("nothing may follow but '?max_keys=N'")
    options = reader.options(pairs, {"max_keys": (_read_count, "an integer from 1 to 10^15")})
    return MemoryStore(clock=clock, **options)


def _read_count(text: str) -> int | None:
    return int(text) if re.fullmatch("[1-9][0-9]{0,14}", text) else None
