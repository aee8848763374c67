"""What is at `/`: a page for people, a list of what there is for programs."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from headgate.service.http.replies import TEXT_LINE, Reply, header_of

if TYPE_CHECKING:
    from headgate.service.http.replies import Scope

INDEX: Final = b"""Headgate: a rate limit decision service.

POST /v1/check            a request described in JSON: may it go on?
ANY  /v1/authorize/...    the same for gateways: the request itself
GET  /v1/rate_limit       what a caller has left
POST /v1/reservations     hold an amount, settle it later
GET  /healthz, /readyz    alive; ready for requests
GET  /metrics             for Prometheus
GET  /openapi.json        all of this in detail
"""
_HTML: Final = (b"content-type", b"text/html; charset=utf-8")
_VARY: Final = (b"vary", b"accept")


def overview(scope: Scope) -> Reply:
    """The page if the caller takes HTML, as browsers do; else the list."""
    if "text/html" not in (header_of(scope, b"accept") or ""):
        return Reply(200, [TEXT_LINE, _VARY], INDEX)
    page, policy = _page()
    guards = [
        (b"content-security-policy", policy),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]
    return Reply(200, [_HTML, _VARY, *guards], page)


@cache
def _page() -> tuple[bytes, bytes]:
    """The page, and what it may do: run its own script and ask this service, nothing else."""
    page = files("headgate.service.http").joinpath("overview.html").read_bytes()
    allowed = b"default-src 'none'; connect-src 'self'; script-src '%b'; style-src '%b'; %b"
    rest = b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return page, allowed % (_digest(page, b"script"), _digest(page, b"style"), rest)


def _digest(page: bytes, name: bytes) -> bytes:
    within = page.partition(b"<%b>" % name)[2].partition(b"</%b>" % name)[0]
    return b"sha256-" + b64encode(sha256(within).digest())
