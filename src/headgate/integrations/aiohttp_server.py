"""Limits in an aiohttp server: for all of an app, for some of its handlers, for none of some.

    setup(app, limits="100/minute", exempt=["/health"])

    @limit("5/minute")
    async def login(request): ...

A middleware checks each request, and a signal adds the headers when its response starts, however
it is made. A request is complete when its body is sent, its websocket is closed, or it failed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from headgate.errors import UsageError, not_installed

try:
    from aiohttp import web
    from aiohttp.payload import Payload
except ModuleNotFoundError as error:
    raise not_installed("aiohttp", error) from error

from headgate.integrations.check_result import SWITCHED, CompletedResponse
from headgate.integrations.decorators import LimitedFunction, chain, is_async
from headgate.integrations.exemptions import EXEMPT_ONES, exempt, is_exempt
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_context import (
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
        super().__init__(native.method, native.remote or LOCAL)
        self.native = native

    @property
    def host(self) -> str:
        """The host of the target, if it has one, else of the `Host` header."""
        return self.native.host

    @property
    def path(self) -> str:
        """The path as aiohttp finds a route by it: a `%2F` in it is no slash."""
        return self.native.rel_url.raw_path

    def header(self, name: str) -> str | None:
        """The value of the header *name*; of several lines the first."""
        return self.native.headers.get(name)

    def cookies(self) -> Mapping[str, str]:
        """The cookies as aiohttp reads them."""
        return self.native.cookies

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.native.headers.items())


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
    return _LimitedHandler.decorator(RouteLimit(limits=limits, **options))


def report(
    request: web.BaseRequest, amounts: Mapping[str, int] | None = None, /, **named: int
) -> None:
    """Report the real cost of *request*, by the name of a limit: `report(request, tokens=812)`."""
    _context_of(request).report(amounts, **named)


@exempt
async def status(request: web.Request) -> web.Response:
    """A handler that returns all limits of the caller as JSON, and consumes none:
    `app.router.add_get("/rate_limit", status)`."""
    body = await adrive(status_body(request.config_dict[LIMITER], AiohttpRequest(request)))
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=body, headers=headers, content_type="application/json")


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
        if context.has_end:
            with suppress(ConnectionError):  # aiohttp notices it too
                await _send(request, found, context)
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


async def _send(
    request: web.Request, response: web.StreamResponse, context: RequestContext
) -> None:
    """Send *response*, and complete the request before the last byte, or after it if the app still
    makes the body."""
    await response.prepare(request)
    is_made = not isinstance(getattr(response, "body", None), Payload)
    if not is_made:
        await response.write_eof()
    if context.counts_bytes and request.method != "HEAD":
        size = announced_size(response.headers.items())
        if size is not None:
            context.sent = size
        elif not is_made:
            context.sent = response.body_length  # with headers and the sizes of chunks
    headers = tuple(response.headers.items())
    await adrive(context.complete(CompletedResponse(response.status, headers)))
    await response.write_eof()


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
    if context.counts_bytes and native.method != "HEAD":
        _count_bytes(response, context)
    if response.status == SWITCHED:
        await adrive(context.settle_at_start(CompletedResponse(SWITCHED)))


def _count_bytes(response: web.StreamResponse, context: RequestContext) -> None:
    """Count what the handler writes to *response*."""
    write = response.write

    async def counted(data: bytes) -> None:
        context.sent += len(data)
        await write(data)

    setattr(response, "write", counted)  # noqa: B010 (mypy: a method is not assigned to)


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


class _LimitedHandler(LimitedFunction):
    """A handler with limits; its counters are named after the route and the function."""

    async def check(self, native: web.Request) -> None:
        """Check a request by the limits; raise the denial."""
        context, request = _context_of(native), AiohttpRequest(native)
        limiter: RequestLimiter = native.config_dict[LIMITER]
        template, counter = _template(native), self.names.counter
        if template is not None:
            counter = f"{template} {counter[1:]}"
        rest = context.start_route(limiter, self.named(context, counter), native, request)
        await _deny_unless(rest, context, limiter)

    def wrapper(self) -> Callable[..., Any]:
        """The handler for aiohttp."""
        function = self.function
        if not is_async(function):
            raise UsageError(
                f"cannot limit {function!r}; write @limit('5/minute') above an async function, or "
                "above a method of a web.View"
            )

        async def call(*args: Any, **kwargs: Any) -> Any:
            for given in args:
                native = given.request if isinstance(given, web.View) else given
                if isinstance(native, web.Request):
                    await self.check(native)
                    return await function(*args, **kwargs)
            raise UsageError(f"{function.__qualname__} was called without a web.Request")

        return call


def _context_of(native: web.BaseRequest) -> RequestContext:
    context: RequestContext | None = native.get(_CONTEXT)
    if context is None:
        raise UsageError("nothing limits this request: call setup(app) of this module first")
    return context


def _template(native: web.Request) -> str | None:
    """The template of the route of a request, as `/users/{id}`; None if there is no route."""
    resource = native.match_info.route.resource
    return None if resource is None else resource.canonical
