"""The methods that a request counts as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.rules.request import Request

GET: Final = "GET"
HEAD: Final = "HEAD"

_HEAD_AND_GET: Final = (HEAD, GET)


def methods_of(request: Request) -> tuple[str, ...]:
    """The methods whose rules are for *request*, in upper case: its own first, and last the one
    that it is handled as.

    They differ for HEAD alone: servers answer it with the handler of GET, at the price of GET, so
    what limits GET must not be escaped by asking for the head only.
    """
    method = request.method.upper()
    return _HEAD_AND_GET if method == HEAD else (method,)
