"""The decorator: each call of a function is a hit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from headgate.decisions import Decision, RateLimitedError
from headgate.errors import UsageError
from headgate.stores.port import checked_cost, checked_key

if TYPE_CHECKING:
    from collections.abc import Awaitable

F = TypeVar("F", bound=Callable[..., Any])

Key = str | Callable[..., str]
"""A key, or a function that makes it from the arguments of the call."""
Cost = int | Callable[..., int]
"""A cost, or a function that makes it from the arguments of the call."""


class Waits(Protocol):
    """The verbs of `RateLimiter` that the decorator needs."""

    def hit(self, key: str, cost: int = 1) -> Decision: ...
    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision: ...


class AsyncWaits(Protocol):
    """The verbs of `AsyncRateLimiter` that the decorator needs."""

    def hit(self, key: str, cost: int = 1) -> Awaitable[Decision]: ...
    def acquire(
        self, key: str, cost: int = 1, timeout: float | None = None
    ) -> Awaitable[Decision]: ...


def decorate(
    limiter: Waits, key: Key | None, cost: Cost, *, wait: bool, timeout: float | None
) -> Callable[[F], F]:
    """A decorator for plain functions."""
    _check_options(key, cost, wait=wait, timeout=timeout)

    def wrap(function: F) -> F:
        _check_function(function)
        if inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{_shared_key(function)} is async: decorate it with an AsyncRateLimiter, "
                "which never blocks the event loop (it can share a MemoryStore with this one)"
            )
        shared = _shared_key(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            whose, price = _ask(key, shared, args, kwargs), _ask(cost, 1, args, kwargs)
            decision = limiter.acquire(whose, price, timeout) if wait else limiter.hit(whose, price)
            if not decision:
                raise RateLimitedError(decision)
            return function(*args, **kwargs)

        return cast("F", call)

    return wrap


def decorate_async(
    limiter: AsyncWaits, key: Key | None, cost: Cost, *, wait: bool, timeout: float | None
) -> Callable[[F], F]:
    """A decorator for async functions."""
    _check_options(key, cost, wait=wait, timeout=timeout)

    def wrap(function: F) -> F:
        _check_function(function)
        if not inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{_shared_key(function)} is not async: decorate it with a RateLimiter"
            )
        shared = _shared_key(function)

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            whose, price = _ask(key, shared, args, kwargs), _ask(cost, 1, args, kwargs)
            asked = limiter.acquire(whose, price, timeout) if wait else limiter.hit(whose, price)
            decision = await asked
            if not decision:
                raise RateLimitedError(decision)
            return await function(*args, **kwargs)

        return cast("F", call)

    return wrap


def _check_options(key: Key | None, cost: Cost, *, wait: bool, timeout: float | None) -> None:
    if key is not None and not callable(key):
        checked_key(key)
    if not callable(cost):
        checked_cost(cost)
    if timeout is not None and not wait:
        raise UsageError("a timeout is for waiting: say wait=True too")


def _check_function(function: object) -> None:
    if not callable(function):
        raise UsageError(f"cannot decorate {function!r}; write @limiter.limit(), with parentheses")


def _shared_key(function: Callable[..., Any]) -> str:
    """The key of all calls of *function*, when none is given."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '')}.{name}"


def _ask(given: Any, default: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if given is None:
        return default
    return given(*args, **kwargs) if callable(given) else given
