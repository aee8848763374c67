"""What a request really cost, said by the view that knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.enforcement.django.incoming import http_request, passage_of
from headgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def report(request: object, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Say what *request* has used of the limits that were asked for an estimate, by their names, or
    of rules that are charged afterwards, by their ids.

    At any time until the response is over, while it is streamed too; the last word counts.
    `UsageError` if nobody limits the request.
    """
    passage = passage_of(http_request(request))
    if passage is None:
        raise UsageError(
            "report() for a request that nobody limits: add RateLimitMiddleware, or limit the view"
        )
    passage.report({**(amounts or {}), **named})
