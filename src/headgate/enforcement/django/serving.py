"""Whether those who call are serving a request: what they make then is gone with it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from django.http import HttpRequest

if TYPE_CHECKING:
    from types import FrameType

_HANDLING: Final = "django.core.handlers.exception"
"""What Django has around each middleware, and around the innermost that calls the view."""

_READING: Final = frozenset(("importlib._bootstrap", "django.urls.resolvers"))
"""What reads modules and the URLconf, with the first request for one. What they make stays."""


def is_serving() -> bool:
    """Whether a request is being served, by the code that calls or by who called that.

    Nobody notes it, for there need not be a middleware of ours: the frames of the callers tell.
    """
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module in _READING:
            return False
        if module == _HANDLING or _has_request(frame):
            return True
        frame = frame.f_back
    return False


def _has_request(frame: FrameType) -> bool:
    """Whether it has a request that a view was found for. That tells in threads of its own, too,
    which begin with the view."""
    return any(
        issubclass(type(value), HttpRequest) and value.resolver_match is not None
        for value in frame.f_locals.values()
    )
