"""What the functions of an app say: that they are exempt, and what they have cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headgate.enforcement.asgi.incoming import passage_in
from headgate.enforcement.marks import mark_exempt
from headgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection

F = TypeVar("F")


def exempt(endpoint: F) -> F:
    """Mark *endpoint* as one that the limits of the whole app are not for.

    It may be a function, a class, or a method of an `HTTPEndpoint`. Limits that it has itself stay.
    Subclasses are not exempt.
    """
    if not callable(endpoint):
        raise UsageError(f"cannot exempt {endpoint!r}; write @exempt above an endpoint")
    return mark_exempt(endpoint)


def report(
    request: HTTPConnection, amounts: Mapping[str, int] | None = None, /, **named: int
) -> None:
    """Say what *request* has really cost, by the name of a limit: `report(request, tokens=812)`.

    A mapping is for names that are no identifiers. Of what is said twice the later counts.
    `UsageError` if nothing has limited this request.
    """
    passage = passage_in(request.scope)
    if passage is None:
        raise UsageError(
            "nothing has limited this request: report() needs RateLimitMiddleware, or a limit "
            "on the endpoint"
        )
    passage.report({**(amounts or {}), **named})
