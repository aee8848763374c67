"""The request that Flask is serving, asked about."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from flask import current_app, request
from werkzeug.exceptions import HTTPException, default_exceptions

from headgate.errors import UsageError
from headgate.integrations.allowance import Allowance, Names, free_name, shown_name
from headgate.integrations.exemptions import is_preflight
from headgate.integrations.passing import enter
from headgate.integrations.wsgi import WsgiRequest, begin, passage_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Flask, Request

    from headgate.integrations.allowance import Asking
    from headgate.integrations.flask.limits import LimitedFunctions
    from headgate.integrations.gate import Gate
    from headgate.integrations.passage import Entry, Passage
    from headgate.responses import Refusal


# A refusal as Flask knows it: an error that its handlers may answer.


def refused(refusal: Refusal) -> HTTPException:
    """What to raise for *refusal*: for 429 a `TooManyRequests` of Werkzeug's.

    Without a handler of the app's it is answered with the refusal. A handler finds what happened in
    `description`, and the seconds to wait, or None, in `retry_after`.
    """
    response = current_app.response_class(
        refusal.body, refusal.status, headers=list(refusal.headers)
    )
    told = json.loads(refusal.body)
    error = _kind(refusal.status)(told.get("message") or told.get("detail"), response)
    error.retry_after = told.get("retry_after")  # type: ignore[attr-defined]
    return error


@lru_cache(maxsize=16)
def _kind(status: int) -> type[HTTPException]:
    """The class of refusals with *status*: handlers are found by it."""
    known = default_exceptions.get(status, HTTPException)
    return type("Refused", (known,), {"code": status, "__module__": __name__})


# What an app keeps of the extension, and which of its views are exempt.


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


if TYPE_CHECKING:
    Named = tuple[Allowance[Request], Names]


def admit_to_app() -> None:
    """Ask what the gate of the app asks; raise the refusal if it refuses."""
    gate = state_of(current_app).gate
    incoming = incoming_request()
    passage = _passage(gate, incoming)
    passage.asked.add(gate)
    _admit(gate, incoming, passage, gate.entry(incoming))


def admit_to(
    allowances: Sequence[Allowance[Request]],
    *,
    place: str,
    title: str,
    first: int,
    is_apart: bool = False,
) -> None:
    """Ask what *allowances* ask, as one; raise the refusal if one refuses.

    *place* is what the counters of those without a name are called after, and *title* what clients
    are told. *first* is the number of the first of them at this place. *is_apart*: the request is
    counted apart from others, and not told of it.
    """
    gate = state_of(current_app).gate
    incoming = incoming_request()
    passage = _passage(gate, incoming)
    asked = _named(allowances, passage, place, title, first)
    native: Request = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
    asking = gate.entry_for(asked, native, incoming, is_preflight=is_apart)
    _admit(gate, incoming, passage, asking)


def is_preflight_for_flask() -> bool:
    """Whether the request is a CORS preflight that Flask answers itself, and no view is called."""
    is_automatic = getattr(request.url_rule, "provide_automatic_options", False)
    if not is_automatic or state_of(current_app).gate.limits_preflights:
        return False
    return is_preflight(WsgiRequest(request.environ))


def incoming_request() -> WsgiRequest:
    """The request as rules see it, with the template of its route."""
    incoming = WsgiRequest(request.environ)
    rule = request.url_rule
    if rule is not None:
        incoming.add_attributes({"route": f"{request.root_path.rstrip('/')}{rule.rule}"})
    return incoming


def _passage(gate: Gate, incoming: WsgiRequest) -> Passage:
    """The passage; a new one if the request did not come through the app's `wsgi_app`."""
    return passage_in(incoming.environ) or begin(incoming, gate, is_watched=False)


def _admit(
    gate: Gate, incoming: WsgiRequest, passage: Passage, asking: Asking[Entry | None]
) -> None:
    if not enter(passage, gate, asking):
        raise refused(gate.refusal(passage, incoming.header("accept")))


def _named(
    allowances: Sequence[Allowance[Request]], passage: Passage, place: str, title: str, first: int
) -> list[Named]:
    taken = {told.name for told in passage.told} | {one.name for one in allowances}
    asked = []
    for number, allowance in enumerate(allowances, first):
        if allowance.name is not None:
            asked.append((allowance, allowance.own_names))
            continue
        shown = free_name(shown_name(title), taken)
        taken.add(shown)
        asked.append((allowance, Names(shown, f"{place}#{number}")))
    return asked
