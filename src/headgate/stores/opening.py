"""From a URL to a store."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from headgate.errors import OptionError, StoreURLError
from headgate.stores.memory import AsyncMemoryStore, MemoryStore
from headgate.stores.port import AsyncStore, Store

if TYPE_CHECKING:
    from headgate.clock import Clock

_INTEGER: Final = re.compile("[1-9][0-9]{0,14}")
_SCHEME: Final = re.compile("([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_REDIS: Final = tuple(
    f"{server}{topology}"
    for server in ("redis", "rediss", "valkey", "valkeys")
    for topology in ("", "+sentinel", "+cluster")
)
SCHEMES: Final = ("memory", *_REDIS, "unix")
"""What a store URL may begin with."""


def open_store(store: str | Store, clock: Clock | None) -> Store:
    """*store* itself, or the one its URL names, on *clock* if one is given."""
    if isinstance(store, str):
        if _scheme(store) == "memory":
            return _memory(store, clock)
        opened: Store = _redis().RedisStore(store, clock=clock)
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
        if _scheme(store) == "memory":
            return AsyncMemoryStore(_memory(store, clock))
        opened: AsyncStore = _redis().AsyncRedisStore(store, clock=clock)
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
        f"cannot open the store {_shown(url)}{hint} Expected memory://, redis://, rediss://, "
        "unix://, redis+sentinel:// or redis+cluster:// (or valkey in place of redis)"
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
