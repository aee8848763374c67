"""Requests without limits: exempt paths, exempt functions, and CORS preflights."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from headgate.errors import OptionError, UsageError
from headgate.policy.path import LONGEST, Pattern, compiled, readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.engine.request import Request


REMEMBERED: Final = 4096
"""The paths that are cached as exempt or not."""

LONGEST_REMEMBERED: Final = 200
"""Longer ones are not cached: callers choose paths."""


class Exemptions:
    """The paths that *patterns* match: `*` is one segment, `**` any number of them.

    A path with several readings is exempt only if all of them are, and as it is written too, in the
    same case: an odd spelling does not escape a limit.
    """

    __slots__ = ("_literally", "_remembered", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str):
            raise OptionError(f"exempt is {patterns!r}; expected a list of paths, as ['/health']")
        texts: tuple[object, ...] = tuple(patterns)
        for text in texts:
            if not isinstance(text, str) or not text.startswith("/"):
                raise OptionError(f"exempt has {text!r}; expected a path such as '/static/**'")
        self.patterns = tuple(compiled(str(text)) for text in texts)
        self._literally = tuple(Pattern(_literal(str(text))) for text in texts)
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._covers)

    def covers(self, path: str) -> bool:
        """True if *path*, as it was received, is exempt. One that is too long to examine is not."""
        if len(path) > LONGEST:
            return False
        return (self._remembered if len(path) <= LONGEST_REMEMBERED else self._covers)(path)

    def _covers(self, path: str) -> bool:
        written = _literal(unquote(path, errors="surrogateescape"))
        if not any(pattern.fits(written) for pattern in self._literally):
            return False
        return all(
            any(pattern.fits(segments) for pattern in self.patterns) for segments in readings(path)
        )


def _literal(path: str) -> tuple[str, ...]:
    """The segments of *path* as they are, an empty one as a NUL; none of "/" alone."""
    return () if path == "/" else tuple(segment or "\0" for segment in path.split("/")[1:])


def is_preflight(request: Request) -> bool:
    """True if *request* is a CORS preflight."""
    return (
        request.method == "OPTIONS"
        and request.header("origin") is not None
        and request.header("access-control-request-method") is not None
    )


# Marks on functions of an app that are exempt from the limits of the whole app.


F = TypeVar("F")

_EXEMPT: Final = "__headgate_exempt__"
EXEMPT_ONES: Final[list[str]] = []
"""The names of the marked functions. If there are none, the route need not be found."""

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def exempt(function: F) -> F:
    """Exempt *function*, or a class, from the limits of the whole app.

    Its own limits stay. Subclasses of a class are not exempt.
    """
    if not callable(function):
        raise UsageError(f"cannot exempt {function!r}; write @exempt above a function or a class")
    return mark_exempt(function)


def mark_exempt(target: F) -> F:
    """Mark *target*, a function, a class or what a framework has for several of them."""
    setattr(target, _EXEMPT, True)
    EXEMPT_ONES.append(getattr(target, "__qualname__", repr(target)))
    return target


def is_exempt(function: object) -> bool:
    """True if *function* is marked, or is an instance of a marked class. A class does not inherit
    the mark."""
    if has_mark(function):
        return True
    return not isinstance(function, type) and has_mark(type(function))


def has_mark(function: object) -> bool:
    """True if *function*, or a class, is itself marked."""
    marks: Mapping[str, object] = getattr(function, "__dict__", _NOTHING)
    return marks.get(_EXEMPT) is True
