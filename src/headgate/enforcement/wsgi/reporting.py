"""What a request really cost, said by the app when it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.enforcement.wsgi.incoming import passage_in
from headgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def report(request: Any, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Say what *request* really cost, by the name of an allowance or the id of a rule.

    *request* is an environ, or anything that has one. *amounts* is for names that are no
    identifiers. What is said last counts; after the end of the response nothing does. `UsageError`
    if no limit has been asked about the request.
    """
    environ = request if isinstance(request, dict) else getattr(request, "environ", None)
    passage = passage_in(environ) if isinstance(environ, dict) else None
    if passage is None:
        raise UsageError(
            "report: nothing limits this request; expected an environ, or a request with one, that "
            "came through a RateLimitMiddleware or RateLimits"
        )
    passage.report({**(amounts or {}), **named})
