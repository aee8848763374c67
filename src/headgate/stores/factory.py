"""From a URL to a store; and from a store to what limiters and runners use.

Those do not ask a store that may fail, or is far away, directly: `guarded` leaves it alone while it
fails, `leased` answers for it where a limit need not be kept exactly. There is one such way to each
store, so that all who use the store in a process share its breaker and what was taken in advance. A
store in this process, or in the memory of this machine, is used as it is.
"""

from __future__ import annotations

import re
import sys
import threading
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

from headgate.errors import OptionError, StoreURLError
from headgate.fork import watch_forks
from headgate.stores.base import AsyncStore, Store
from headgate.stores.layers.circuit_breaker import AsyncGuardedStore, GuardedStore
from headgate.stores.layers.leases import AsyncLeasedStore, LeasedStore
from headgate.stores.memory import AsyncMemoryStore, MemoryStore

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.stores.base import Terms
    from headgate.stores.layers.circuit_breaker.guard import Guard

_INTEGER: Final = re.compile("[1-9][0-9]{0,14}")
_SCHEME: Final = re.compile("([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_REDIS: Final = tuple(
    f"{server}{topology}"
    for server in ("redis", "rediss", "valkey", "valkeys")
    for topology in ("", "+sentinel", "+cluster")
)
SCHEMES: Final = ("memory", "shm", *_REDIS, "unix")
"""What a store URL may begin with."""


def open_store(store: str | Store, clock: Clock | None) -> Store:
    """*store* itself, or the one its URL names, on *clock* if one is given."""
    if isinstance(store, str):
        scheme = _scheme(store)
        if scheme == "memory":
            return _memory(store, clock)
        opened: Store
        if scheme == "shm":
            opened = _shm().ShmStore(store, clock=clock)
        else:
            opened = _redis().RedisStore(store, clock=clock)
        return opened
    if not isinstance(store, Store):
        raise StoreURLError(
            f"the store is {store!r}; expected a URL such as 'memory://' or a Store"
        )
    _refuse_clock(clock)
    return store


def open_async_store(store: str | Store | AsyncStore, clock: Clock | None) -> AsyncStore:
    """The same for an event loop. A `MemoryStore` serves both."""
    if isinstance(store, str):
        scheme = _scheme(store)
        if scheme == "memory":
            return AsyncMemoryStore(_memory(store, clock))
        opened: AsyncStore
        if scheme == "shm":
            opened = _shm().AsyncShmStore(store, clock=clock)
        else:
            opened = _redis().AsyncRedisStore(store, clock=clock)
        return opened
    _refuse_clock(clock)
    if isinstance(store, MemoryStore):
        return AsyncMemoryStore(store)
    if isinstance(store, AsyncStore):
        return store
    raise StoreURLError(
        f"the store is {store!r}; expected a URL such as 'memory://', an AsyncStore or a "
        "MemoryStore: any other Store would block the event loop"
    )


class Ways:
    """The way to each store that is in use. A way keeps its store, so as long as there is one, no
    other store can be mistaken for it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Store] = WeakValueDictionary()
        self._known_async: WeakValueDictionary[int, AsyncStore] = WeakValueDictionary()
        self._terms: WeakKeyDictionary[Store | AsyncStore, WeakKeyDictionary[object, Terms]]
        self._terms = WeakKeyDictionary()
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def to(self, store: Store) -> Store:
        if not store.may_fail or isinstance(store, LeasedStore) or _is_near(store):
            return store
        with self._lock:
            found = self._known.get(id(store))
            if found is None:
                found = store if isinstance(store, GuardedStore) else GuardedStore(store)
                found = LeasedStore(found) if store.lends else found
                self._known[id(store)] = found
        return found

    def to_async(self, store: AsyncStore) -> AsyncStore:
        if not store.waits or isinstance(store, AsyncLeasedStore):
            return store
        with self._lock:
            found = self._known_async.get(id(store))
            if found is None:
                found = store if isinstance(store, AsyncGuardedStore) else AsyncGuardedStore(store)
                found = AsyncLeasedStore(found) if store.lends else found
                self._known_async[id(store)] = found
        return found

    def adopt(self, store: Store | AsyncStore, user: object, terms: Terms) -> None:
        with self._lock:
            of_store = self._terms.setdefault(store, WeakKeyDictionary())
            if of_store.get(user, {}) == terms:
                return
            of_store[user] = terms
            together = {group: own for one in of_store.values() for group, own in one.items()}
            store.adopt(together)


_ways: Final = Ways()


def store_in_use(store: str | Store, clock: Clock | None) -> Store:
    """What is to be used for *store*, which is a store or the URL of one: the way to it."""
    return _ways.to(open_store(store, clock))


def async_store_in_use(store: str | Store | AsyncStore, clock: Clock | None) -> AsyncStore:
    """The same for an event loop."""
    return _ways.to_async(open_async_store(store, clock))


def adopt_terms(store: Store | AsyncStore, user: object, terms: Terms) -> None:
    """Have *store* keep the counters of *user* as *terms* say, beside those of its other users.

    Where two have terms for one group, those of the latter are taken.
    """
    _ways.adopt(store, user, terms)


def guard_of(store: Store | AsyncStore) -> Guard | None:
    """The guard on the way that *store* is, if there is one."""
    found: object = store
    while found is not None:
        if isinstance(found, GuardedStore | AsyncGuardedStore):
            return found.guard
        found = getattr(found, "inner", None)
    return None


def store_behind(store: Store) -> Store:
    """The store itself that *store* is the way to."""
    while True:
        if isinstance(store, LeasedStore):
            store = store.inner
        elif isinstance(store, GuardedStore):
            return store.store
        else:
            return store


def async_store_behind(store: AsyncStore) -> AsyncStore:
    """The same for an event loop."""
    while True:
        if isinstance(store, AsyncLeasedStore):
            store = store.inner
        elif isinstance(store, AsyncGuardedStore):
            return store.store
        else:
            return store


def _is_near(store: Store) -> bool:
    """Whether *store* is in the memory of this machine."""
    module = sys.modules.get("headgate.stores.shm")  # an extra: not imported for this question
    return module is not None and isinstance(store, module.ShmStore)


def _refuse_clock(clock: Clock | None) -> None:
    if clock is not None:
        raise OptionError("give the clock to the store, not to the limiter, when you make both")


def _scheme(url: str) -> str:
    """What *url* begins with, if there is a store for it."""
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme in SCHEMES:
        return scheme
    near = get_close_matches(scheme, SCHEMES, n=1)
    hint = f"; did you mean '{near[0]}://'?" if near else "."
    raise StoreURLError(
        f"cannot open the store {_shown(url)}{hint} Expected memory://, shm://, redis://, "
        "rediss://, unix://, redis+sentinel:// or redis+cluster:// (or valkey in place of redis)"
    )


def _redis() -> Any:
    """The part of Headgate that needs a client library; told how to install that if it is not."""
    try:
        return import_module("headgate.stores.redis")
    except ModuleNotFoundError as error:
        if error.name not in {"redis", "hiredis"}:
            raise
        raise StoreURLError(
            f"a Redis store needs the package {error.name!r}: pip install 'headgate[redis]'"
        ) from error


def _shm() -> Any:
    """The part of Headgate that shares memory, where the system has what it takes."""
    try:
        return import_module("headgate.stores.shm")
    except ModuleNotFoundError as error:
        if error.name != "fcntl":
            raise
        raise StoreURLError(
            "shm:// needs locks on files as Unix has them: there are none here, use redis://"
        ) from error


def _shown(url: str) -> str:
    """*url* for a message, without what may be a password."""
    return repr(re.sub("//.*@", "//***@", url, flags=re.DOTALL))


def _memory(url: str, clock: Clock | None) -> MemoryStore:
    shown = _shown(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreURLError(f"cannot read the store URL {shown}: {error}") from error
    if parts.netloc or parts.path.strip("/") or parts.fragment:
        raise StoreURLError(f"{shown}: nothing may follow 'memory://' but '?max_keys=N'")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise StoreURLError(f"{shown}: an option is given twice")
    text = options.pop("max_keys", None)
    if options:
        raise StoreURLError(f"{shown}: unknown option {min(options)!r}; there is only 'max_keys'")
    if text is None:
        return MemoryStore(clock=clock)
    if not _INTEGER.fullmatch(text):
        raise StoreURLError(f"{shown}: max_keys is {text!r}; expected an integer from 1 to 10^15")
    return MemoryStore(clock=clock, max_keys=int(text))
