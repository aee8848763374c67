"""The decorator of limiters: each call of a function is a hit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headgate.decision import RateLimitedError
from headgate.errors import UsageError
from headgate.stores.base import checked_cost, checked_key

if TYPE_CHECKING:
    from headgate.decision import Decision

F = TypeVar("F", bound=Callable[..., Any])

Key = str | Callable[..., str]
"""A key, or a function that makes it from the arguments of the call."""
Cost = int | Callable[..., int]
"""A cost, or a function that makes it from the arguments of the call."""


def decorate(
    hit: Callable[[str, int], Any],
    acquire: Callable[[str, int, float | None], Any],
    key: Key | None,
    cost: Cost,
    *,
    wait: bool,
    timeout: float | None,
    is_async: bool,
) -> Callable[[F], F]:
    """A decorator that hits or acquires before each call; for async functions if *is_async*."""
    _check_options(key, cost, wait=wait, timeout=timeout)

    def decide(shared: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        whose, price = _resolve(key, shared, args, kwargs), _resolve(cost, 1, args, kwargs)
        return acquire(whose, price, timeout) if wait else hit(whose, price)

    def wrap(function: F) -> F:
        _check_function(function, is_async=is_async)
        shared = _shared_key(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            _raise_denied(decide(shared, args, kwargs))
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            _raise_denied(await decide(shared, args, kwargs))
            return await function(*args, **kwargs)

        return cast("F", acall if is_async else call)

    return wrap


def _raise_denied(decision: Decision) -> None:
    if not decision:
        raise RateLimitedError(decision)


def _check_options(key: Key | None, cost: Cost, *, wait: bool, timeout: float | None) -> None:
    if key is not None and not callable(key):
        checked_key(key)
    if not callable(cost):
        checked_cost(cost)
    if timeout is not None and not wait:
        raise UsageError("a timeout is for waiting: say wait=True too")


def _check_function(function: Callable[..., Any], *, is_async: bool) -> None:
    if not callable(function):
        raise UsageError(f"cannot decorate {function!r}; write @limiter.limit(), with parentheses")
    if inspect.iscoroutinefunction(function) == is_async:
        return
    if is_async:
        raise UsageError(f"{_shared_key(function)} is not async: decorate it with a RateLimiter")
    raise UsageError(
        f"{_shared_key(function)} is async: decorate it with an AsyncRateLimiter, "
        "which never blocks the event loop (it can share a MemoryStore with this one)"
    )


def _shared_key(function: Callable[..., Any]) -> str:
    """The key of all calls of *function*, when none is given."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '')}.{name}"


def _resolve(given: Any, default: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if given is None:
        return default
    return given(*args, **kwargs) if callable(given) else given
