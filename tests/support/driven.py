"""One test body for a blocking class and its async twin."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any


class Driven:
    """Calls the methods of *subject* from a plain function; coroutines run in a loop of their own.

    Objects with an async `cancel` that it returns are driven as well.
    """

    def __init__(self, subject: Any) -> None:
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._subject, name)
        return (lambda *args, **named: _run(value(*args, **named))) if callable(value) else value

    def __bool__(self) -> bool:
        return bool(self._subject)

    def __repr__(self) -> str:
        return repr(self._subject)

    def close(self) -> None:
        """`close` or `aclose`."""
        _run(getattr(self._subject, "aclose", None) or self._subject.close)


def _run(result: Any) -> Any:
    if inspect.ismethod(result):
        result = result()
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    return (
        Driven(result) if inspect.iscoroutinefunction(getattr(result, "cancel", None)) else result
    )
