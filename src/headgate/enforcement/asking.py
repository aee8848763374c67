"""Going through an `Asking`, in an app that may block and in one that may not."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.enforcement.allowance import Asking

T = TypeVar("T")

PLAIN: Final = frozenset({str, int, bool, tuple, list, type(None)})
"""What functions return mostly, and what nobody has to wait for."""


def answered(asking: Asking[T]) -> T:
    """What *asking* comes to. `UsageError` if one of its functions has to be awaited."""
    try:
        value = next(asking)
        while True:
            if type(value) not in PLAIN and inspect.isawaitable(value):
                _refuse(value)
            value = asking.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


async def answered_async(asking: Asking[T]) -> T:
    """What *asking* comes to; what has to be awaited is."""
    try:
        value = next(asking)
        while True:
            if type(value) not in PLAIN and inspect.isawaitable(value):
                value = await value
            value = asking.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


def _refuse(value: object) -> None:
    close = getattr(value, "close", None)
    if close is not None:
        close()  # or Python warns that it was never awaited
    raise UsageError(
        "a function for a limit is async, and this app is not async: make it a plain one"
    )
