"""The endpoint of a request, as a part of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.matching.path import resources, segments_of
from headgate.rules.matching.pattern import compiled

if TYPE_CHECKING:
    from headgate.rules.request import Request

ROUTE: Final = "route"
"""The attribute that has the template of the route, if a framework knows it: `/users/{id}`."""


def endpoint_of(request: Request, endpoints: tuple[str, ...] = ()) -> str | None:
    """The route that a framework chose for *request*; else its normalised path.

    None if the path is ambiguous: servers may take it for different resources. If a rule for
    *endpoints* is for one of them alone, it is that one.

    It is not the pattern of a rule: one counter for all that a pattern fits is what a rule without
    `endpoint` in its key has anyway.
    """
    route = request.attributes.get(ROUTE)
    if route:
        return route
    return endpoint_at(request.path, endpoints)


def endpoint_at(path: str, endpoints: tuple[str, ...] = ()) -> str | None:
    """The same for a request without a route."""
    found = resources(path)
    named = {resource for resource, _ in found}
    if len(named) > 1 and endpoints:
        patterns = [compiled(one) for one in endpoints]
        named = {
            resource
            for resource, segments in found
            if any(one.fits(segments) or one.fits(segments_of(resource)) for one in patterns)
        }
    return named.pop() if len(named) == 1 else None
