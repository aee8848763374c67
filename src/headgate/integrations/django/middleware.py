"""The Django middleware: checks each request, and adds headers to its response.

Under WSGI it blocks, under ASGI it does not: Django says which by what it is given to call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from headgate.integrations.django.request import (
    DjangoRequest,
    class_of,
    context_of,
    new_context,
    view_of,
)
from headgate.integrations.django.responses import add_headers, denial_of, ending, failed
from headgate.integrations.django.settings import check_setting, current_limiter
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt, mark_exempt
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Effect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.runtime.effects import Effects


class CallView(Effect):
    """Call a view, or the next middleware; awaited in an event loop if it is async."""

    __slots__ = ("arguments", "function", "options")

    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self.function = function
        self.arguments = arguments
        self.options = options

    def perform(self) -> Any:
        return self.function(*self.arguments, **self.options)

    async def aperform(self) -> Any:
        response = self.function(*self.arguments, **self.options)
        return await response if inspect.isawaitable(response) else response


# Views that are exempt from the limits of the project.


View = TypeVar("View", bound=Callable[..., Any])

_ITSELF: Final = "__headgate_exempt_itself__"
"""On what `as_view` returned, to which Django copies the marks of `dispatch`."""


def exempt(view: View) -> View:
    """Exempt *view* from the limits of the project; its own limits stay.

    Subclasses of an exempt class are not exempt.
    """
    if view_of(view) is not None:
        return view  # bound by a `method_decorator` for a request, which was checked before
    if class_of(view) is not None:
        setattr(view, _ITSELF, True)
    return mark_exempt(view)


def is_exempt_view(view: Callable[..., Any]) -> bool:
    """True if *view*, as a URLconf has it, is exempt."""
    owner = class_of(view)
    if owner is None:
        return is_exempt(view)
    if is_exempt(owner) or getattr(view, _ITSELF, False):
        return True
    return is_exempt(vars(owner).get("dispatch"))


class RateLimitMiddleware:
    """Limits all requests as the setting `HEADGATE` says, and writes headers for views' limits too.

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
        """Serve one request."""
        serving = self._serving(request)
        return adrive(serving) if self._is_async else drive(serving)

    def _serving(self, request: HttpRequest) -> Effects[HttpResponseBase]:
        limiter, outer = current_limiter(), context_of(request)
        context = outer or new_context(request, limiter)
        checked = DjangoRequest(request)
        if self._checks(checked, limiter, context):
            rest = context.start(limiter, checked)
            if rest is not None and not (yield from rest):
                return denial_of(request, limiter, context)
        if outer is not None:  # a middleware further out sends headers and completes the request
            response: HttpResponseBase = yield CallView(self.get_response, request)
            return response
        try:
            response = yield CallView(self.get_response, request)
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from context.complete(failed(error))
            raise
        add_headers(response, context)
        yield from ending(request, response, context)
        return response

    def _checks(
        self, request: DjangoRequest, limiter: RequestLimiter, context: RequestContext
    ) -> bool:
        """True if the limits of the project are for *request*, and have not been checked."""
        return limiter not in context.checked and not self._is_exempt(request)

    def _is_exempt(self, request: DjangoRequest) -> bool:
        """True if the view is exempt; it is looked for only if there are such views.

        That is known when the URLconf has been read, which the first look at it does.
        """
        urlconf = getattr(request.django, "urlconf", None)
        if not EXEMPT_ONES and urlconf in self._looked_into:
            return False
        self._looked_into.add(urlconf)
        match = request.match
        return match is not None and is_exempt_view(match.func)
