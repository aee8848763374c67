"""The endpoint of a request, as a part of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.matching.path import normalised_path

if TYPE_CHECKING:
    from headgate.rules.request import Request

ROUTE: Final = "route"
"""The attribute that has the template of the route, if a framework knows it: `/users/{id}`."""


def endpoint_of(request: Request) -> str:
    """The route that a framework chose for *request*; else its normalised path.

    It is not the pattern of a rule: one counter for all that a pattern fits is what a rule without
    `endpoint` in its key has anyway.
    """
    return request.attributes.get(ROUTE) or normalised_path(request.path)
