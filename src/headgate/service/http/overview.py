"""What is at `/`: the dashboard for people, a list of what there is for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.service.http.dashboard import page_reply
from headgate.service.http.replies import TEXT_LINE, Reply, header_of

if TYPE_CHECKING:
    from headgate.service.http.replies import Scope

INDEX: Final = b"""Headgate: a rate limit decision service.

GET  /                    in a browser: the dashboard
POST /v1/check            a request described in JSON: may it go on?
ANY  /v1/authorize/...    the same for gateways: the request itself
GET  /v1/rate_limit       what a caller has left
POST /v1/reservations     hold an amount, settle it later
GET  /healthz, /readyz    alive; ready for requests
GET  /metrics             for Prometheus
ANY  /admin/v1/...        with a token: rules, history, live figures, explain
GET  /openapi.json        all of this in detail
"""
_VARY: Final = (b"vary", b"accept")


def overview(scope: Scope) -> Reply:
    """The dashboard if the caller takes HTML, as browsers do; else the list."""
    if "text/html" not in (header_of(scope, b"accept") or ""):
        return Reply(200, [TEXT_LINE, _VARY], INDEX)
    return page_reply(scope, _VARY)
