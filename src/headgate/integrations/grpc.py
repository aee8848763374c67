"""Limits in a gRPC server: interceptors for `grpc.server` and `grpc.aio.server`.

    grpc.server(pool, interceptors=[RateLimitInterceptor(limits="100/minute")])

A denied call ends with RESOURCE_EXHAUSTED, and with `grpc-retry-pushback-ms` in its trailing
metadata: gRPC clients with a retry policy wait that long. A call that could not be checked by a
limit that fails closed ends with UNAVAILABLE. A stream is one call: its slots are released, and its
cost is settled, when it ends or its client goes away.
"""

from __future__ import annotations

import functools
import inspect
import re
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import unquote

from headgate.errors import OptionError, UsageError, not_installed

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise not_installed("grpc", error) from error

from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.decorators import inner_function, is_async
from headgate.integrations.request_context import RequestContext
from headgate.integrations.request_limiter import limiter_of
from headgate.integrations.request_view import LOCAL, RequestView
from headgate.integrations.route_limit import NamedLimits, RouteLimit, named_limits, shown_name
from headgate.responses import grpc_status
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from headgate.engine.stack import Limits
    from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter
    from headgate.runtime.effects import Effects

    Handler = grpc.RpcMethodHandler[Any, Any]
    Metadata = tuple[tuple[str, str | bytes], ...]
    MethodLimits = Mapping[str, "RouteLimit | Limits"]

__all__ = ["AsyncRateLimitInterceptor", "GrpcRequest", "RateLimitInterceptor", "report"]

_METHOD: Final = re.compile(r"/[^/\s]+/[^/\s]+")
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_HTTP: Final = dict(
    enumerate((200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401))
)
"""The HTTP status of each gRPC status code (google.rpc.Code)."""

_current: ContextVar[RequestContext | None] = ContextVar("headgate_call", default=None)


class GrpcRequest(RequestView):
    """A call as limits see it: metadata as headers, the full name of the method as path.

    `context` is the servicer context. `message` is the request, or None if it is a stream.
    """

    __slots__ = ("context", "message", "rpc")

    def __init__(self, rpc: str, context: Any, message: Any) -> None:
        kind, _, address = unquote(context.peer()).partition(":")
        is_ip = kind in ("ipv4", "ipv6")  # and no Unix socket
        super().__init__("POST", address.rpartition(":")[0].strip("[]") if is_ip else LOCAL)
        self.rpc = rpc
        self.context = context
        self.message = message

    host: str = ""

    @property
    def knows_headers(self) -> bool:
        """False: servers look in the metadata themselves, from either end."""
        return False

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        lines = self.context.invocation_metadata() or ()
        return tuple((name, value) for name, value in lines if isinstance(value, str))

    def _read_path(self) -> str:
        return self.rpc


def report(amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Report the real cost of the call that is being served: `report(tokens=812)`.

    It is charged at the end of the call, in place of the held cost. *amounts* is for names that are
    no identifiers. `UsageError` if no limit has checked the call.
    """
    call = _current.get()
    if call is None:
        raise UsageError("no limit has checked this call: does the server have the interceptor?")
    call.report(amounts, **named)


class _Interceptor:
    """The limits of a server, and of its methods."""

    _is_blocking = False

    def __init__(
        self,
        limiter: RequestLimiter | None = None,
        *,
        methods: MethodLimits | None = None,
        **options: Unpack[LimiterOptions],
    ) -> None:
        self.limiter = limiter_of(limiter, options)
        self.methods: dict[str, NamedLimits] = {}
        """The limits of each method with their names."""
        for rpc, given in (methods or {}).items():
            if not _METHOD.fullmatch(rpc):
                raise OptionError(f"methods has {rpc!r}; expected such as '/shop.Orders/Create'")
            one = given if isinstance(given, RouteLimit) else RouteLimit(limits=given)
            self.methods[rpc] = named_limits((one,), shown_name(rpc[1:]), rpc)
            if self._is_blocking:
                one.check_blocking()
        if self._is_blocking:
            self.limiter.check_blocking()
        _ = self.limiter.engine  # reports a wrong store at once

    def limited(self, handler: Handler | None, rpc: str) -> Handler | None:
        """*handler* of *rpc* with limits; None stays None: the server has no such method."""
        if handler is None:
            return None
        kind = "stream" if handler.request_streaming else "unary"
        kind += "_stream" if handler.response_streaming else "_unary"
        behavior: Callable[..., Any] = getattr(handler, kind)
        call = functools.partial(_Call, self, rpc, is_stream=handler.request_streaming)
        if is_async(behavior) or inspect.isasyncgenfunction(inner_function(behavior)):
            serve = _serve_stream_async if handler.response_streaming else _serve_async
        else:  # in a thread of its own, on grpc.aio too
            serve = _serve_stream if handler.response_streaming else _serve
        wrapped = functools.wraps(behavior)(serve(behavior, call))
        make: Callable[..., Handler] = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(wrapped, handler.request_deserializer, handler.response_serializer)


class RateLimitInterceptor(_Interceptor, grpc.ServerInterceptor):
    """Limits the calls to a `grpc.server` by *limiter*, or by a new one with the same options.

    *methods*: further limits of single methods, by full name: `{"/shop.Orders/Create": "5/minute"}`
    or a `RouteLimit`. Functions get a `GrpcRequest`.
    """

    _is_blocking = True

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, with limits."""
        return self.limited(continuation(handler_call_details), handler_call_details.method)


class AsyncRateLimitInterceptor(_Interceptor, grpc.aio.ServerInterceptor):
    """Limits the calls to a `grpc.aio.server`: as `RateLimitInterceptor`. Functions may be async,
    unless a handler is a blocking one."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, with limits."""
        return self.limited(await continuation(handler_call_details), handler_call_details.method)


class _Call(RequestContext):
    """One call: `check_call`, then the handler inside of `current`, then `end`."""

    def __init__(
        self, interceptor: _Interceptor, rpc: str, message: Any, context: Any, *, is_stream: bool
    ) -> None:
        self._request = GrpcRequest(rpc, context, None if is_stream else message)
        super().__init__(interceptor.limiter, self._request)
        self._limits = interceptor.methods.get(rpc)
        self._context = context
        self._trailers: Metadata = ()
        self._error: BaseException | None = None

    def check_call(self) -> Effects[bool]:
        """Check the call by the limits of the server, then by those of the method."""
        request, self._request = self._request, None  # type: ignore[assignment] # needed no more
        rest = self.start(self.limiter, request)
        if rest is not None and not (yield from rest):
            return False
        if self._limits is not None:
            rest = self.start_route(self.limiter, self._limits, request, request)
            if rest is not None and not (yield from rest):
                return False
        self._trailers = self._metadata(200)
        if self._trailers:
            self._context.set_trailing_metadata(self._trailers)
        return True

    def denial_status(self) -> tuple[grpc.StatusCode, str]:
        """The status of the denied call; its trailing metadata is set."""
        status = grpc_status(self.answer(), options=self.limiter.responses)
        self._context.set_trailing_metadata((*status.trailers, *self._metadata(429)))
        return _CODES[status.code], status.message

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the call that `report` is about; add our metadata to that of the handler."""
        _current.set(self)
        try:
            yield
            theirs = tuple(self._context.trailing_metadata() or ())
            if self._trailers and not any(line in theirs for line in self._trailers):
                self._context.set_trailing_metadata((*theirs, *self._trailers))
        except BaseException as raised:  # GeneratorExit of a stream too: the client has gone
            self._error = raised
            raise
        finally:
            _current.set(None)

    def end(self) -> Effects[None]:
        """Settle what is held, and release slots."""
        error, self._error = self._error, None  # which refers to this call
        if not self.has_end:
            return
        code = self._context.code()
        number = code.value[0] if isinstance(code, grpc.StatusCode) else int(code or 0)
        if error is not None and number == 0:
            number = 2 if isinstance(error, Exception) else 1  # UNKNOWN; the client has gone
        response = CompletedResponse(_HTTP.get(number, 500), (("grpc-status", str(number)),), error)
        yield from self.complete(response)

    def _metadata(self, status: int) -> Metadata:
        return tuple((name.lower(), value) for name, value in self.header_lines(status))


# The four shapes of handlers. Each checks the call first, and ends it last.


@contextmanager
def _serving(call: _Call, context: Any) -> Iterator[None]:
    if not drive(call.check_call()):
        context.abort(*call.denial_status())
    try:
        with call.current():
            yield
    finally:
        drive(call.end())


def _serve(behavior: Callable[..., Any], start: Callable[..., _Call]) -> Callable[..., Any]:
    def serve(message: Any, context: Any) -> Any:
        with _serving(start(message, context), context):
            return behavior(message, context)

    return serve


def _serve_stream(behavior: Callable[..., Any], start: Callable[..., _Call]) -> Callable[..., Any]:
    def serve(message: Any, context: Any) -> Iterator[Any]:
        with _serving(start(message, context), context):
            yield from behavior(message, context)

    return serve


def _serve_async(behavior: Callable[..., Any], start: Callable[..., _Call]) -> Callable[..., Any]:
    async def serve(message: Any, context: Any) -> Any:
        call = start(message, context)
        if not await adrive(call.check_call()):
            await context.abort(*call.denial_status())
        try:
            with call.current():
                return await behavior(message, context)
        finally:
            await adrive(call.end())

    return serve


def _serve_stream_async(
    behavior: Callable[..., Any], start: Callable[..., _Call]
) -> Callable[..., Any]:
    if not inspect.isasyncgenfunction(behavior):  # it writes to its context itself
        return _serve_async(behavior, start)

    async def write(message: Any, context: Any) -> None:
        stream: AsyncIterator[Any]
        async with aclosing(behavior(message, context)) as stream:
            async for response in stream:
                await context.write(response)

    # A coroutine and no generator: a cancellation reaches it wherever it waits.
    return _serve_async(write, start)
