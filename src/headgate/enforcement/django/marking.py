"""Views that the limits of the project are not for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from headgate.enforcement.django.naming import class_of, view_of
from headgate.enforcement.marks import is_exempt, mark_exempt

View = TypeVar("View", bound=Callable[..., Any])

_ITSELF: Final = "__headgate_exempt_itself__"
"""On what `as_view` returned, to which Django copies the marks of `dispatch`."""


def exempt(view: View) -> View:
    """Let the middleware pass requests for *view* unasked; limits of its own still hold.

    A class that is exempt is so itself; those that are made of it are not.
    """
    if view_of(view) is not None:
        return view  # bound by a `method_decorator` for a request, which was asked about before
    if class_of(view) is not None:
        setattr(view, _ITSELF, True)
    return mark_exempt(view)


def is_exempt_view(view: Callable[..., Any]) -> bool:
    """Whether *view*, as a URLconf has it, is exempt."""
    owner = class_of(view)
    if owner is None:
        return is_exempt(view)
    if is_exempt(owner) or getattr(view, _ITSELF, False):
        return True
    return is_exempt(vars(owner).get("dispatch"))
