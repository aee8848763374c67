"""Requests that no limit is for: named paths, and what browsers ask before they ask."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.rules.matching import compiled, readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.rules.request import Request

REMEMBERED: Final = 4096
"""How many paths are remembered as exempt or not."""

LONGEST_REMEMBERED: Final = 200
"""Longer ones are not: nobody is to fill the memory with paths."""


class Exemptions:
    """The paths that *patterns* mean: `*` is one segment, `**` any number of them.

    A path that can be read in several ways is exempt only if it is in all of them: nobody gets past
    a limit by an odd spelling of a path that has none.
    """

    __slots__ = ("_patterns", "_remembered")

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str):
            raise OptionError(f"exempt is {patterns!r}; expected a list of paths, as ['/health']")
        texts: tuple[object, ...] = tuple(patterns)
        for text in texts:
            if not isinstance(text, str) or not text.startswith("/"):
                raise OptionError(f"exempt has {text!r}; expected a path such as '/static/**'")
        self._patterns = tuple(compiled(str(text)) for text in texts)
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._covers)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def covers(self, path: str) -> bool:
        """Whether *path*, as it was received, is exempt."""
        return (self._remembered if len(path) <= LONGEST_REMEMBERED else self._covers)(path)

    def _covers(self, path: str) -> bool:
        return all(
            any(pattern.fits(segments) for pattern in self._patterns) for segments in readings(path)
        )


def is_preflight(request: Request) -> bool:
    """Whether a browser asks what it may ask: a CORS preflight, which no user can help."""
    return (
        request.method == "OPTIONS"
        and request.header("origin") is not None
        and request.header("access-control-request-method") is not None
    )
