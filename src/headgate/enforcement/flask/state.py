"""What an app keeps of the extension, and which of its views are exempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from flask import current_app, request

from headgate.errors import UsageError

if TYPE_CHECKING:
    from flask import Flask

    from headgate.enforcement.flask.naming import LimitedFunctions
    from headgate.enforcement.gate import Gate

F = TypeVar("F")

EXTENSION: Final = "headgate"
"""Where in `app.extensions` the state is."""

_EXEMPT: Final = "__headgate_exempt__"


@dataclass(frozen=True, slots=True)
class State:
    """The gate of an app. *limits_static*: whether it is also for files of static folders.

    *functions* are those that its extension has limited.
    """

    gate: Gate
    limits_static: bool
    functions: LimitedFunctions


def state_of(app: Flask) -> State:
    """The state of *app*; `UsageError` if it has none: nobody goes unlimited by accident."""
    state: State | None = app.extensions.get(EXTENSION)
    if state is None:
        raise UsageError(
            f"the app {app.name!r} has views with limits and no RateLimits: "
            "call limits.init_app(app) when it is made"
        )
    return state


def mark_exempt(target: F) -> F:
    """Mark *target* as one that the limits of the whole app are not for. Unlike the marks of ASGI
    apps these are looked for whether there are any or not."""
    setattr(target, _EXEMPT, True)
    return target


def is_exempt_here() -> bool:
    """Whether the view that the request is for, or a blueprint it is in, is exempt."""
    endpoint = request.endpoint
    if endpoint is None:
        return False
    view = current_app.view_functions.get(endpoint)
    if _is_marked(view) or _is_marked(getattr(view, "view_class", None)):
        return True
    blueprints = current_app.blueprints
    if any(_is_marked(blueprints.get(name)) for name in request.blueprints):
        return True
    return not state_of(current_app).limits_static and _is_static(endpoint)


def _is_marked(target: object) -> bool:
    """Whether *target* itself is marked: a class is not for what another, its parent, was told."""
    return getattr(target, "__dict__", {}).get(_EXEMPT, False) is True


def _is_static(endpoint: str) -> bool:
    """Whether *endpoint* is Flask's own for a static folder, not somebody's of the same name."""
    owner, _, name = endpoint.rpartition(".")
    if name != "static":
        return False
    holder = current_app.blueprints.get(owner) if owner else current_app
    return holder is not None and holder.has_static_folder
