"""Marks on functions of an app: those that the limits of the whole app are not for."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

F = TypeVar("F")

_EXEMPT: Final = "__headgate_exempt__"
EXEMPT_ONES: Final[list[str]] = []
"""The names of what is marked. If there are none, nobody has to find out what a request is for."""

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def mark_exempt(function: F) -> F:
    """Mark *function* as one that the limits of the whole app are not for."""
    setattr(function, _EXEMPT, True)
    EXEMPT_ONES.append(getattr(function, "__qualname__", repr(function)))
    return function


def is_exempt(function: object) -> bool:
    """Whether *function* is marked itself, or is an instance of a class that is.

    A class does not inherit the mark: who made it says nothing of what was made of it.
    """
    if _has_mark(function):
        return True
    return not isinstance(function, type) and _has_mark(type(function))


def _has_mark(function: object) -> bool:
    marks: Mapping[str, object] = getattr(function, "__dict__", _NOTHING)
    return marks.get(_EXEMPT) is True
