"""The request that Flask is serving, asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import current_app, request

from headgate.enforcement.allowance import Allowance, Names
from headgate.enforcement.exemptions import is_preflight
from headgate.enforcement.flask.refusing import refused
from headgate.enforcement.flask.state import state_of
from headgate.enforcement.naming import free_name, shown_name
from headgate.enforcement.passing import enter
from headgate.enforcement.wsgi.incoming import WsgiRequest, passage_in
from headgate.enforcement.wsgi.middleware import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Request

    from headgate.enforcement.allowance import Asking
    from headgate.enforcement.gate import Gate
    from headgate.enforcement.passage import Entry, Passage

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
