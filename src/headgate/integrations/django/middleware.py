"""The middleware: each request is asked about, and its response told of it.

Under WSGI it blocks, under ASGI it does not: Django tells which by what it is given to call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpResponse

from headgate.integrations.debugging import with_limits
from headgate.integrations.django.ending import end, end_async, failed
from headgate.integrations.django.request import DjangoRequest, begin, class_of, passage_of, view_of
from headgate.integrations.django.settings import check_setting, current_gate
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt, mark_exempt
from headgate.integrations.passing import enter, enter_async, finish, finish_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from headgate.integrations.gate import Gate
    from headgate.integrations.passage import Passage


# Responses of Django's: refusals, and the headers of those that go on.


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


# Views that the limits of the project are not for.


View = TypeVar("View", bound=Callable[..., Any])

_ITSELF: Final = "__headgate_exempt_itself__"
"""On what `as_view` returned, to which Django copies the marks of `dispatch`."""


def exempt(view: View) -> View:
    """Let the middleware pass requests for *view* unasked; limits of its own still hold.

    A class that is exempt is so itself; those that are made of it are not.
    """
    if view_of(view) is not None:
        return view  # bound by a `method_decorator` for a request, which was asked about before
    if class_of(view) is not None:
        setattr(view, _ITSELF, True)
    return mark_exempt(view)


def is_exempt_view(view: Callable[..., Any]) -> bool:
    """Whether *view*, as a URLconf has it, is exempt."""
    owner = class_of(view)
    if owner is None:
        return is_exempt(view)
    if is_exempt(owner) or getattr(view, _ITSELF, False):
        return True
    return is_exempt(vars(owner).get("dispatch"))


class RateLimitMiddleware:
    """Limits all requests as the setting `HEADGATE` says, and sends headers for views' limits too.

    It stands in `MIDDLEWARE` after what its key function needs, such as
    `AuthenticationMiddleware`, and else as far up as possible.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        self._looked_into: set[Hashable] = set()
        check_setting(is_async=self._is_async)  # so that a wrong one keeps the server from starting

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Take one request."""
        return self._without_blocking(request) if self._is_async else self._blocking(request)

    def _blocking(self, request: HttpRequest) -> HttpResponseBase:
        gate, outer = current_gate(), passage_of(request)
        passage = outer or begin(request, gate)
        asked = DjangoRequest(request)
        if self._asks(asked, gate, passage) and not enter(passage, gate, gate.entry(asked)):
            return refused(request, gate, passage)
        response: HttpResponseBase
        if outer is not None:  # somebody further out sees to the response
            response = self.get_response(request)
            return response
        try:
            response = self.get_response(request)
        except BaseException as error:
            finish(passage, failed(error))
            raise
        tell(response, passage)
        end(request, response, passage)
        return response

    async def _without_blocking(self, request: HttpRequest) -> HttpResponseBase:
        gate, outer = current_gate(), passage_of(request)
        passage = outer or begin(request, gate)
        asked = DjangoRequest(request)
        if self._asks(asked, gate, passage):
            is_admitted = await enter_async(passage, gate, gate.entry(asked))
            if not is_admitted:
                return refused(request, gate, passage)
        response: HttpResponseBase
        if outer is not None:
            response = await self.get_response(request)
            return response
        try:
            response = await self.get_response(request)
        except BaseException as error:
            await finish_async(passage, failed(error))
            raise
        tell(response, passage)
        await end_async(request, response, passage)
        return response

    def _asks(self, request: DjangoRequest, gate: Gate, passage: Passage) -> bool:
        """Whether the gate's own limits are for *request*: not if they have been asked already."""
        if gate in passage.asked or self._is_marked_exempt(request):
            return False
        passage.asked.add(gate)
        return True

    def _is_marked_exempt(self, request: DjangoRequest) -> bool:
        """Whether the view is marked with `exempt`; it is looked for only if there is any.

        That is known when the URLconf has been read, which the first look at it does.
        """
        urlconf = getattr(request.django, "urlconf", None)
        if not EXEMPT_ONES and urlconf in self._looked_into:
            return False
        self._looked_into.add(urlconf)
        match = request.match
        return match is not None and is_exempt_view(match.func)
