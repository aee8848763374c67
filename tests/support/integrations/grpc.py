"""The part of the contract that makes sense for a gRPC server, on a real one.

Statuses are those of HTTP that stand for gRPC's codes, and headers are the trailing metadata. A
route is a method: `/` is `/contract.App/index`.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import grpc

from headgate.integrations import RouteLimit
from headgate.integrations.grpc import RateLimitInterceptor, report
from headgate.testing.integration_contract import Exchange, Reply, Server
from headgate.testing.integration_contract.limits import AppLimitContract, RouteLimitContract
from headgate.testing.integration_contract.outages import OutageContract
from headgate.testing.integration_contract.request_end import ChargeContract, SlotContract
from headgate.testing.integration_contract.responses import ResponseContract
from headgate.testing.integration_contract.subject import IntegrationUnderTest
from tests.support.integrations.http_servers import NUMBER, Ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.testing.integration_contract import Answer, AppSpec

STATUSES = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}
STREAMS = ("stream", "breaks")


def method_of(path: str) -> str:
    return f"/contract.App/{path.strip('/').replace('/', '-') or 'index'}"


class GrpcCall:
    """A call of a method."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._headers = dict(context.invocation_metadata())

    def header(self, name: str) -> str | None:
        return self._headers.get(name)

    def read(self, size: int) -> bytes:
        return b""

    def report(self, amounts: Mapping[str, int]) -> None:
        report(amounts)

    def forbid(self) -> Answer:
        raise AssertionError(self._context.abort(grpc.StatusCode.PERMISSION_DENIED, "no"))


class App(grpc.GenericRpcHandler):
    """The methods of *spec*, and the interceptor with its limits."""

    def __init__(self, spec: AppSpec) -> None:
        self._routes = {method_of(route.path): route for route in spec.routes}
        self._script = spec.script
        limits = {rpc: one.limit for rpc, one in self._routes.items() if one.limit is not None}
        methods: dict[str, Any] = {rpc: RouteLimit(**own) for rpc, own in limits.items()}
        self.interceptor = RateLimitInterceptor(methods=methods, **spec.options)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        route = self._routes[details.method]
        make: Any = grpc.unary_unary_rpc_method_handler
        serve: Any = self._serve
        if route.behaviour in STREAMS:
            make, serve = grpc.unary_stream_rpc_method_handler, self._stream
        handler: grpc.RpcMethodHandler[bytes, bytes] = make(functools.partial(serve, route))
        return handler

    def _serve(self, route: Any, _message: bytes, context: Any) -> Any:
        return self._script.play(route.behaviour, GrpcCall(context)).body

    def _stream(self, route: Any, _message: bytes, context: Any) -> Iterator[bytes]:
        yield from self._serve(route, _message, context)

    def streams(self, path: str) -> bool:
        """True if the method at *path* has several messages."""
        return self._routes[method_of(path)].behaviour in STREAMS


class Watching(grpc.ServerInterceptor):
    """Records the end of each call."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        number = dict(handler_call_details.invocation_metadata)[NUMBER]
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                functools.partial(self._stream, handler.unary_stream, number)
            )
        return grpc.unary_unary_rpc_method_handler(
            functools.partial(self._serve, handler.unary_unary, number)
        )

    def _serve(self, serve: Any, number: str, message: bytes, context: Any) -> Any:
        try:
            return serve(message, context)
        finally:
            self._ends.add(number)

    def _stream(self, serve: Any, number: str, message: bytes, context: Any) -> Iterator[Any]:
        try:
            yield from serve(message, context)
        finally:
            self._ends.add(number)


class GrpcServer(Server):
    """`grpc.server` with threads, and a client."""

    def __init__(self, app: App) -> None:
        self._app, self._ends = app, Ends()
        self._pool = ThreadPoolExecutor(8)
        interceptors = [Watching(self._ends), app.interceptor]
        self._server = grpc.server(self._pool, handlers=[app], interceptors=interceptors)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._numbers = map(str, count())

    def open(self, method: str, path: str, headers: Mapping[str, str], length: int) -> GrpcExchange:
        number = next(self._numbers)
        metadata = tuple({**headers, NUMBER: number}.items())
        begin: Any = self._channel.unary_stream(method_of(path))
        call = begin(b"", metadata=metadata, timeout=30)
        end = functools.partial(self._ends.wait, number)
        return GrpcExchange(call, end, is_stream=self._app.streams(path))

    def close(self) -> None:
        self._channel.close()
        self._server.stop(0).wait()
        self._pool.shutdown()


class GrpcExchange(Exchange):
    """A call. The status of one with a single message is known at its end."""

    def __init__(self, call: Any, wait: Any, *, is_stream: bool) -> None:
        self._call, self._wait, self._is_stream = call, wait, is_stream
        self._parts: list[bytes] = []

    def send(self, part: bytes, *, is_last: bool = False) -> None:
        raise NotImplementedError

    def start(self) -> Reply:
        first = self._next()
        while first and not self._is_stream:
            self._parts.append(first)
            first = self._next()
        if first:
            self._parts.append(first)
            return Reply(200, ())
        lines = tuple((name, str(value)) for name, value in self._call.trailing_metadata())
        return Reply(STATUSES[self._call.code()], lines)

    def _next(self) -> bytes:
        try:
            return bytes(next(self._call, b""))
        except grpc.RpcError:
            return b""

    def read(self) -> bytes:
        return self._parts.pop(0) if self._parts else self._next()

    def disconnect(self) -> None:
        self._call.cancel()

    def wait(self) -> None:
        self._wait()


class GrpcContract(IntegrationUnderTest):
    """An interceptor, and limits of methods."""

    interface = "wsgi"  # it blocks

    def build(self, spec: AppSpec) -> App:
        return App(spec)

    def serve(self, app: Any) -> GrpcServer:
        return GrpcServer(app)

    test_denied = (
        ResponseContract.test_a_request_beyond_the_limit_is_denied_and_does_not_reach_the_app
    )
    test_figures = ResponseContract.test_an_allowed_response_has_the_figures_of_the_limit
    test_shadow = ResponseContract.test_a_limit_in_shadow_mode_denies_nothing_and_has_no_headers
    test_key = AppLimitContract.test_a_key_function_says_which_requests_share_a_counter
    test_address = AppLimitContract.test_a_request_without_a_key_is_counted_by_client_ip
    test_cost = AppLimitContract.test_a_denied_cost_consumes_nothing
    test_limits = AppLimitContract.test_limits_may_depend_on_the_request_and_none_is_no_limit
    test_stacked = AppLimitContract.test_stacked_limits_are_all_or_nothing
    test_exempt = AppLimitContract.test_exempt_when_exempts_by_request
    test_method = RouteLimitContract.test_routes_without_a_shared_name_are_counted_apart
    test_shared = RouteLimitContract.test_routes_with_one_name_share_a_limit
    test_both = RouteLimitContract.test_the_response_has_the_figures_of_the_app_and_of_the_route
    test_refunded = RouteLimitContract.test_a_denial_of_the_route_refunds_what_the_app_charged
    test_reported = ChargeContract.test_the_reported_cost_takes_the_place_of_the_estimate
    test_slot = SlotContract.test_a_slot_is_taken_while_the_app_works_and_free_afterwards
    test_stream = SlotContract.test_a_slot_is_taken_for_the_length_of_a_stream
    test_failed = SlotContract.test_a_slot_is_free_after_an_error_of_the_app
    test_raised = SlotContract.test_a_slot_is_free_after_an_error_of_the_framework
    test_broken = SlotContract.test_a_slot_is_free_after_a_stream_that_breaks_off
    test_cancelled = SlotContract.test_a_slot_is_free_after_a_client_that_disconnects
    test_renewed = SlotContract.test_a_slot_is_renewed_for_as_long_as_its_request_lasts
    test_open = OutageContract.test_a_limit_that_fails_open_lets_requests_pass_without_figures
    test_open_bound = OutageContract.test_a_limit_that_fails_open_lets_no_more_pass_than_the_limit
    test_local = OutageContract.test_a_limit_that_falls_back_counts_in_the_process
    test_back = OutageContract.test_the_store_counts_again_when_it_is_back
    test_gone = OutageContract.test_a_store_that_goes_while_a_request_lasts_does_not_break_it
    test_closed = OutageContract.test_a_route_that_fails_closed_is_a_503
    _leaves_slot_free = SlotContract._leaves_slot_free
