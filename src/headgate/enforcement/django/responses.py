"""Responses of Django's: refusals, and the headers of those that go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.http import HttpResponse

from headgate.enforcement.merging import with_limits

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from headgate.enforcement.gate import Gate
    from headgate.enforcement.passage import Passage

_RETRY: Final = "retry-after"


class RefusedResponse(HttpResponse):
    """What a caller gets who was refused; it says all there is to say already."""


def refused(request: HttpRequest, gate: Gate, passage: Passage) -> RefusedResponse:
    """The response to *request*, which was refused. For HEAD it has no body."""
    refusal = gate.refusal(passage, request.META.get("HTTP_ACCEPT"))
    body = b"" if request.method == "HEAD" else refusal.body
    response = RefusedResponse(body, status=refusal.status, headers=dict(refusal.headers))
    response.headers["Content-Length"] = str(len(refusal.body))
    return response


def tell(response: HttpResponseBase, passage: Passage) -> None:
    """Say in the headers of *response* what is to be said of limits.

    Whoever has said when to come back is not contradicted, and who is served is not told to.
    """
    is_silent = passage.is_silent and passage.refusal is None
    if is_silent or isinstance(response, RefusedResponse):
        return
    has_wait = response.has_header(_RETRY) or response.status_code < 400
    lines: dict[str, list[str]] = {}
    for name, value in with_limits(
        list(response.items()), passage.gate, passage, response.status_code
    ):
        if name.lower() != _RETRY or not has_wait:
            lines.setdefault(name.lower(), [name]).append(value)
    for name, *values in lines.values():
        response.headers[name] = ", ".join(values)
