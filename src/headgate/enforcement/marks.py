"""Marks on functions of an app: those that the limits of the whole app are not for."""

from __future__ import annotations

from typing import Final, TypeVar

F = TypeVar("F")

_EXEMPT: Final = "__headgate_exempt__"
EXEMPT_ONES: Final[list[str]] = []
"""The names of what is marked. If there are none, nobody has to find out what a request is for."""


def mark_exempt(function: F) -> F:
    """Mark *function* as one that the limits of the whole app are not for."""
    setattr(function, _EXEMPT, True)
    EXEMPT_ONES.append(getattr(function, "__qualname__", repr(function)))
    return function


def is_exempt(function: object) -> bool:
    """Whether *function* is marked."""
    return getattr(function, _EXEMPT, False) is True
