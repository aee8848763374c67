"""The middleware: each request is asked about, and its response told of it.

Under WSGI it blocks, under ASGI it does not: Django tells which by what it is given to call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from headgate.enforcement.django.ending import end, end_async, failed
from headgate.enforcement.django.incoming import DjangoRequest, begin, passage_of
from headgate.enforcement.django.marking import is_exempt_view
from headgate.enforcement.django.responses import refused, tell
from headgate.enforcement.django.settings import check_setting, current_gate
from headgate.enforcement.marks import EXEMPT_ONES
from headgate.enforcement.passing import enter, enter_async, finish, finish_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from headgate.enforcement.gate import Gate
    from headgate.enforcement.passage import Passage


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
