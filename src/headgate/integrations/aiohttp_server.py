"""Limits in an aiohttp server: for all of an app, for some of its handlers, for none of some.

    setup(app, limits="100/minute", exempt=["/health"])

    @limit("5/minute")
    async def login(request): ...

A middleware checks each request, and a signal adds the headers when its response starts, whoever
makes that. A request is complete when its body is sent, its websocket is closed, or it failed.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from headgate.errors import UsageError, not_installed

try:
    from aiohttp import web
except ModuleNotFoundError as error:
    raise not_installed("aiohttp", error) from error

from headgate.integrations.decorated import (
    Decorated,
    added,
    chain,
    count_below,
    decorated_in,
    function_names,
    mark,
)
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt, mark_exempt
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_context import (
    SWITCHED,
    CompletedResponse,
    RequestContext,
    announced_size,
)
from headgate.integrations.request_limiter import RequestLimiter, limiter_of
from headgate.integrations.request_view import LOCAL, RequestView
from headgate.integrations.route_limit import RouteLimit
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from headgate.engine.stack import Limits
    from headgate.integrations.request_limiter import LimiterOptions
    from headgate.integrations.route_limit import LimitOptions, LimitsOf
    from headgate.runtime.effects import Effects

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

__all__ = ["AiohttpRequest", "exempt", "limit", "report", "setup", "status"]

F = TypeVar("F", bound="Callable[..., Any]")

LIMITER: Final = web.AppKey("headgate", RequestLimiter)
"""The key of an app under which its limiter is."""

_CONTEXT: Final[Any] = getattr(web, "RequestKey", lambda name, _: name)("headgate", RequestContext)
"""The key of a request under which its context is: before aiohttp 3.14 such keys are text."""


class AiohttpRequest(RequestView):
    """A view of `native`, the request of aiohttp."""

    __slots__ = ("native",)

    def __init__(self, native: web.Request) -> None:
        super().__init__()
        self.native = native

    @property
    def method(self) -> str:
        """The method."""
        return self.native.method

    @property
    def host(self) -> str:
        """The `Host` header."""
        return self.header("host") or ""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        return self.native.remote or LOCAL

    def header(self, name: str) -> str | None:
        """The value of the header *name*; of several lines the first."""
        return self.native.headers.get(name)

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.native.headers.items())

    def _read_path(self) -> str:
        return self.native.path


def setup(
    app: web.Application, limiter: RequestLimiter | None = None, **options: Unpack[LimiterOptions]
) -> RequestLimiter:
    """Limit the requests to *app*, and to the apps in it, by *limiter*, or by a new one.

    The limiter is returned. One that was made here is closed with the app. The middleware is the
    outermost one: call `setup` after the others are added.
    """
    if not isinstance(app, web.Application):
        raise UsageError(f"app is {app!r}; expected an aiohttp.web.Application")
    if LIMITER in app:
        raise UsageError("setup() was called twice for one app: give all limits to one call")
    found = limiter_of(limiter, options)
    _ = found.engine  # reports a wrong store at once
    app[LIMITER] = found
    app.middlewares.insert(0, _check_request)
    app.on_response_prepare.append(_add_headers)

    async def life(_app: web.Application) -> AsyncIterator[None]:
        found.watch()
        yield
        if limiter is None:
            await found.aclose()

    app.cleanup_ctx.append(life)
    return found


def limit(
    limits: Limits | LimitsOf[web.Request], **options: Unpack[LimitOptions]
) -> Callable[[F], F]:
    """Limit a handler: an async function of the request, or a method of a `web.View`.

    The options are those of a `RouteLimit`; functions get aiohttp's request, and may be async.
    Without *name* each route that the handler serves has its own counter. Several on one handler
    are one check, all or nothing. A denial is raised: `web.HTTPTooManyRequests`, or
    `web.HTTPServiceUnavailable` if the limit could not be checked. The app needs `setup`.
    """
    one: RouteLimit[Any] = RouteLimit(limits=limits, **options)

    def decorate(handler: F) -> F:
        return _limited(handler, one)

    return decorate


def exempt(handler: F) -> F:
    """Exempt *handler*, a function or a `web.View`, from the limits of the whole app."""
    if not callable(handler):
        raise UsageError(f"cannot exempt {handler!r}; write @exempt above a handler")
    return mark_exempt(handler)


def report(
    request: web.BaseRequest, amounts: Mapping[str, int] | None = None, /, **named: int
) -> None:
    """Report the real cost of *request*, by the name of a limit: `report(request, tokens=812)`."""
    _context_of(request).report({**(amounts or {}), **named})


async def status(request: web.Request) -> web.Response:
    """A handler that tells a caller all limits of the app, and consumes none:
    `app.router.add_get("/rate_limit", status)`."""
    body = await adrive(status_body(request.config_dict[LIMITER], AiohttpRequest(request)))
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=body, headers=headers, content_type="application/json")


mark_exempt(status)


# The middleware, and the headers.


@web.middleware
async def _check_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check a request by the limits of the app; complete it at the end."""
    limiter: RequestLimiter = request.config_dict[LIMITER]
    if _CONTEXT in request:  # an app in an app: the outer middleware completes the request
        await _check(request, request[_CONTEXT], limiter)
        return await handler(request)
    context = RequestContext(limiter, AiohttpRequest(request), is_managed=True)
    request[_CONTEXT] = context
    response = CompletedResponse(500)
    try:
        await _check(request, context, limiter)
        found = await handler(request)
        response = CompletedResponse(found.status, tuple(found.headers.items()))
        if context.has_end:  # it is complete when its body is sent
            with suppress(ConnectionError):  # aiohttp notices it too
                await found.prepare(request)
                await found.write_eof()
            if context.counts_bytes and request.method != "HEAD":
                context.sent = announced_size(found.headers.items()) or found.body_length
    except web.HTTPException as denial:
        response = CompletedResponse(denial.status, tuple(denial.headers.items()), denial)
        raise
    except BaseException as raised:
        response = CompletedResponse(response.status_code, (), raised)
        raise
    finally:
        if context.has_end:
            await adrive(context.complete(response))
    return found


async def _check(native: web.Request, context: RequestContext, limiter: RequestLimiter) -> None:
    if limiter in context.checked:
        return
    if EXEMPT_ONES and any(is_exempt(one) for one in chain(native.match_info.handler)):
        context.checked += (limiter,)
        return
    request = AiohttpRequest(native)
    if limiter.reads_attributes and (template := _template(native)) is not None:
        request.add_attributes({"route": template})
    await _deny_unless(context.start(limiter, request), context, limiter)


async def _add_headers(native: web.BaseRequest, response: web.StreamResponse) -> None:
    """Add the headers about limits to a response that starts."""
    context: RequestContext | None = native.get(_CONTEXT)
    if context is None:
        return
    if not context.is_silent:
        lines = context.with_headers(list(response.headers.items()), response.status)
        response.headers.clear()
        response.headers.extend(lines)
    if response.status == SWITCHED:
        await adrive(context.settle_at_start(CompletedResponse(SWITCHED)))


async def _deny_unless(
    rest: Effects[bool] | None, context: RequestContext, limiter: RequestLimiter
) -> None:
    if rest is None or await adrive(rest):
        return
    denial = context.denial_response(limiter)
    error = _kind(denial.status)()
    error.body = denial.body
    error.headers.update(denial.headers)
    raise error


@lru_cache(maxsize=16)
def _kind(code: int) -> type[web.HTTPException]:
    """The class of denials with the status *code*."""
    known: dict[int, type[web.HTTPException]] = {
        429: web.HTTPTooManyRequests,
        503: web.HTTPServiceUnavailable,
    }
    return known.get(code) or type("Denied", (web.HTTPError,), {"status_code": code})


# Handlers with limits.


class _LimitedHandler(Decorated):
    """A handler with limits; its counters are named after the route and the function."""

    async def check(self, native: web.Request) -> None:
        """Check a request by the limits; raise the denial."""
        context, request = _context_of(native), AiohttpRequest(native)
        limiter: RequestLimiter = native.config_dict[LIMITER]
        names = function_names(self.function)
        template = _template(native)
        counter = names.counter if template is None else f"{template} {names.counter[1:]}"
        limits = self.named(context, names.shown, counter)
        await _deny_unless(context.start_route(limiter, limits, native, request), context, limiter)


def _limited(handler: F, one: RouteLimit[Any]) -> F:
    """*handler* with *one* more limit: all of them are one check."""
    if not inspect.iscoroutinefunction(handler):
        raise UsageError(
            f"cannot limit {handler!r}; write @limit('5/minute') above an async function, or above "
            "a method of a web.View"
        )
    inner: Callable[..., Any] = handler
    limits: tuple[RouteLimit[Any], ...] = (one,)
    first = count_below(handler)
    before = decorated_in(handler, _LimitedHandler)
    if before is not None:
        inner, limits, first = before.function, added(before.limits, one), before.first
    limited = _LimitedHandler(inner, limits, first)

    @functools.wraps(inner)
    async def call(*args: Any, **kwargs: Any) -> Any:
        for given in args:
            native = given.request if isinstance(given, web.View) else given
            if isinstance(native, web.Request):
                await limited.check(native)
                return await inner(*args, **kwargs)
        raise UsageError(f"{limited.function.__qualname__} was called without a web.Request")

    mark(call, limited)
    return call  # type: ignore[return-value]


def _context_of(native: web.BaseRequest) -> RequestContext:
    context: RequestContext | None = native.get(_CONTEXT)
    if context is None:
        raise UsageError("nothing limits this request: call setup(app) of this module first")
    return context


def _template(native: web.Request) -> str | None:
    """The template of the route of a request, as `/users/{id}`; None if there is no route."""
    resource = native.match_info.route.resource
    return None if resource is None else resource.canonical
