"""Cookies in one line: what rules see is all that there is.

The service is told the first line of a header. Rules look at the cookies of all lines, and so do
many servers: in a second line a session would be used without being counted. No browser sends one
(RFC 6265, 5.4), and those of HTTP/2 Envoy joins. So where rules look at cookies, a request with
several lines is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.engine.interest import headers_of_interest
from headgate.gateway.envoy.mutations import put, removed

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json
    from headgate.rules.model import Policy

_COOKIE: Final = "cookie"
_FIRST: Final = "x-headgate-cookie"
_SEVERAL: Final = "x-headgate-cookies"


@dataclass(frozen=True, slots=True)
class CookieLines:
    """What finds requests with several lines: *mutations* done to headers first, *refused* matches
    of those requests, *internal* headers that no upstream sees."""

    mutations: tuple[Json, ...] = ()
    refused: tuple[Json, ...] = ()
    internal: tuple[str, ...] = ()


def cookie_lines(policy: Policy) -> CookieLines:
    """What is needed for *policy*: nothing, if it does not look at cookies."""
    if _COOKIE not in headers_of_interest(policy):
        return CookieLines()
    is_one = f"request.headers['{_COOKIE}'] == request.headers['{_FIRST}']"
    several = {"name": _SEVERAL, "present_match": True}
    return CookieLines(
        mutations=(
            *map(removed, (_FIRST, _SEVERAL)),
            put(_FIRST, f"%REQ({_COOKIE})%"),
            put(_SEVERAL, f"%CEL({is_one} ? '' : 'several')%"),
            removed(_FIRST),
        ),
        refused=({"prefix": "/", "headers": [several]},),
        internal=(_SEVERAL,),
    )
