"""The gRPC interceptors: statuses, metadata, keys, costs, and how a call ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations import RequestLimiter, RouteLimit
from headgate.integrations.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor, report
from headgate.limits import Concurrency
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.grpc_apps import METHOD, AbortedError, AsyncFakeContext, FakeContext, handler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from headgate.integrations import CompletedResponse
    from headgate.integrations.grpc import GrpcRequest

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
PUSHBACK = "grpc-retry-pushback-ms"


class DownStore(Store):
    """A store that fails."""

    def run(self, operation: object) -> Any:
        raise StoreError("it is down")

    def close(self) -> None:
        pass


def echo(message: bytes, _context: Any) -> bytes:
    return message


def interceptor(**options: Any) -> RateLimitInterceptor:
    if "store" not in options:
        options["clock"] = ManualClock()
    return RateLimitInterceptor(**options)


def called(serve: Callable[..., Any], message: Any = b"x", **metadata: Any) -> FakeContext:
    """The context of a call that *serve* has served, allowed or denied."""
    context = FakeContext(**metadata)
    try:
        result = serve(message, context)
        if not isinstance(result, bytes):
            list(result)
    except AbortedError:
        pass
    return context


def statuses(serve: Callable[..., Any], count: int, **metadata: Any) -> list[Any]:
    return [called(serve, **metadata).status for _ in range(count)]


def test_an_allowed_call_tells_its_limits_in_trailing_metadata() -> None:
    serve = handler(interceptor(limits="2/minute"), echo)
    context = FakeContext()
    assert serve(b"hello", context) == b"hello"
    assert context.trailers["ratelimit-policy"] == '"default";q=2;w=60'
    assert context.trailers["x-ratelimit-remaining"] == "1"
    assert PUSHBACK not in context.trailers


def test_a_denied_call_is_exhausted_and_pushed_back() -> None:
    serve = handler(interceptor(limits="1/minute"), echo)
    called(serve)
    denied = called(serve)
    assert denied.status is EXHAUSTED
    assert denied.details == "Too many requests: 1 per minute. Try again in 60 seconds."
    assert denied.trailers[PUSHBACK] == "60000"
    assert denied.trailers["retry-after"] == "60"


def test_a_cost_that_never_fits_forbids_a_retry() -> None:
    serve = handler(interceptor(limits="5/minute", cost=6), echo)
    assert called(serve).trailers[PUSHBACK] == "-1"


def test_the_metadata_of_the_handler_stays() -> None:
    def own(message: bytes, context: FakeContext) -> bytes:
        context.set_trailing_metadata((("x-own", "1"),))
        return message

    trailers = called(handler(interceptor(limits="2/minute"), own)).trailers
    assert trailers["x-own"] == "1"
    assert trailers["x-ratelimit-remaining"] == "1"


def test_an_unknown_method_stays_unknown() -> None:
    assert interceptor(limits="1/minute").limited(None, "/no.Such/Method") is None


def test_limits_of_methods_add_to_those_of_the_server() -> None:
    limits = interceptor(limits="3/minute", methods={METHOD: "1/minute"})
    create, listing = handler(limits, echo), handler(limits, echo, method="/shop.Orders/List")
    assert statuses(create, 2) == [None, EXHAUSTED]
    # the denied call consumed nothing of the server's limit
    assert statuses(listing, 3) == [None, None, EXHAUSTED]


def test_a_method_limit_names_itself_after_the_method() -> None:
    serve = handler(interceptor(methods={METHOD: "1/minute"}), echo)
    assert called(serve).trailers["ratelimit-policy"] == '"shop.Orders-Create";q=1;w=60'


def test_methods_with_one_name_share_a_counter() -> None:
    shared = RouteLimit(limits="1/minute", name="writes")
    limits = interceptor(methods={METHOD: shared, "/shop.Orders/Drop": shared})
    assert called(handler(limits, echo)).status is None
    assert called(handler(limits, echo, method="/shop.Orders/Drop")).status is EXHAUSTED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ipv4:192.0.2.7:5000", "ipv4:192.0.2.7:6000"),
        ("ipv6:%5B2001:db8::1%5D:5000", "ipv6:[2001:db8::2]:6000"),
        ("unix:", "unix:/tmp/socket"),
    ],
)
def test_calls_of_one_address_share_a_counter(one: str, other: str) -> None:
    serve = handler(interceptor(limits="1/minute"), echo)
    assert called(serve, peer=one).status is None
    assert called(serve, peer=other).status is EXHAUSTED
    assert called(serve, peer="ipv4:198.51.100.1:1").status is None


def test_keys_come_from_metadata() -> None:
    serve = handler(interceptor(limits="1/minute", key=lambda call: call.header("x-user")), echo)
    assert statuses(serve, 2, x_user="ann") == [None, EXHAUSTED]
    assert called(serve, x_user="bob").status is None
    assert called(serve, x_user_bin=b"\0").status is None  # by address


def test_costs_come_from_the_message() -> None:
    limit = RouteLimit(limits="10/minute", cost=lambda call: len(call.message))
    serve = handler(interceptor(methods={METHOD: limit}), echo)
    assert called(serve, b"1234567").status is None
    assert called(serve, b"1234").status is EXHAUSTED
    assert called(serve, b"123").status is None


def test_exempt_methods_are_not_limited() -> None:
    limits = interceptor(limits="1/minute", exempt=["/grpc.health.v1.Health/*"])
    health = handler(limits, echo, method="/grpc.health.v1.Health/Check")
    assert statuses(health, 3) == [None] * 3
    assert "ratelimit" not in called(health).trailers
    free = interceptor(limits="1/minute", exempt_when=lambda call: call.header("x-staff") == "1")
    assert statuses(handler(free, echo), 3, x_staff="1") == [None] * 3


@pytest.mark.parametrize(
    ("mode", "status"), [("fail_open", None), ("fail_closed", grpc.StatusCode.UNAVAILABLE)]
)
def test_an_outage_of_the_store_opens_or_closes(mode: Any, status: Any) -> None:
    limits = interceptor(limits="2/minute", store=DownStore(), on_store_failure=mode)
    assert statuses(handler(limits, echo), 2) == [status, status]


def test_a_stream_holds_its_slot_to_its_end() -> None:
    def count(_message: bytes, _context: Any) -> Iterator[bytes]:
        yield b"1"
        yield b"2"

    serve = handler(interceptor(limits=Concurrency(1, 60)), count, "unary_stream")
    stream = serve(b"", FakeContext())
    assert next(stream) == b"1"
    assert called(serve).status is EXHAUSTED
    assert list(stream) == [b"2"]
    assert called(serve).status is None


def test_a_stream_that_is_dropped_releases_its_slot() -> None:
    def endless(_message: bytes, _context: Any) -> Iterator[bytes]:
        while True:
            yield b"."

    serve = handler(interceptor(limits=Concurrency(1, 60)), endless, "stream_stream")
    stream = serve(iter([b"a"]), FakeContext())
    next(stream)
    stream.close()
    assert next(serve(iter([b"a"]), FakeContext())) == b"."


def test_charge_when_sees_the_status_of_the_call() -> None:
    seen: list[CompletedResponse] = []

    def charges(response: CompletedResponse) -> bool:
        seen.append(response)
        return response.status_code == 401

    def login(message: bytes, context: FakeContext) -> bytes:
        if message == b"wrong":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong password")
        if message == b"broken":
            raise ValueError("broken")
        return message

    limit = RouteLimit(limits="1/minute", charge_when=charges)
    serve = handler(interceptor(methods={METHOD: limit}), login)
    assert called(serve, b"right").status is None
    with pytest.raises(ValueError, match="broken"):
        serve(b"broken", FakeContext())
    assert called(serve, b"wrong").status is grpc.StatusCode.UNAUTHENTICATED
    assert called(serve, b"right").status is EXHAUSTED
    assert [one.status_code for one in seen] == [200, 500, 401]
    assert [one.header("grpc-status") for one in seen] == ["0", "2", "16"]


def test_the_handler_reports_its_real_cost() -> None:
    def work(message: bytes, _context: Any) -> Iterator[bytes]:
        report(tokens=2)
        yield message

    limit = RouteLimit(limits="10/minute", cost=8, is_estimate=True, name="tokens")
    serve = handler(interceptor(methods={METHOD: limit}), work, "unary_stream")
    assert statuses(serve, 3) == [None, None, EXHAUSTED]  # 2 + 2 + 8 do not fit


def test_report_outside_of_a_limited_call_is_an_error() -> None:
    with pytest.raises(UsageError, match="does the server have the interceptor"):
        report(tokens=1)


def test_mistakes_are_reported_when_the_limit_is_declared() -> None:
    async def key(_call: object) -> str:
        return "ann"

    with pytest.raises(OptionError, match=r"'/shop\.Orders/Create'"):
        interceptor(methods={"Create": "5/minute"})
    with pytest.raises(UsageError, match="key is an async function"):
        interceptor(limits="5/minute", key=key)
    with pytest.raises(UsageError, match="key is an async function"):
        interceptor(methods={METHOD: RouteLimit(limits="5/minute", key=key)})
    with pytest.raises(OptionError, match="use RequestLimiter"):
        RateLimitInterceptor(RequestLimiter(), limits="5/minute")


# grpc.aio


def async_interceptor(**options: Any) -> AsyncRateLimitInterceptor:
    return AsyncRateLimitInterceptor(clock=ManualClock(), **options)


def test_an_async_server_allows_and_denies() -> None:
    async def hello(message: bytes, _context: Any) -> bytes:
        return message

    async def key(call: GrpcRequest) -> str | None:
        return call.header("x-user")

    serve = handler(async_interceptor(limits="1/minute", key=key), hello)

    async def main() -> None:
        allowed, denied = AsyncFakeContext(x_user="ann"), AsyncFakeContext(x_user="ann")
        assert await serve(b"hi", allowed) == b"hi"
        assert allowed.trailers["x-ratelimit-remaining"] == "0"
        with pytest.raises(AbortedError):
            await serve(b"hi", denied)
        assert denied.status is EXHAUSTED
        assert denied.trailers[PUSHBACK] == "60000"

    asyncio.run(main())


@pytest.mark.parametrize("form", ["generator", "writer"])
def test_a_cancelled_async_stream_releases_its_slot(form: str) -> None:
    closed: list[str] = []

    async def generator(_message: bytes, _context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"1"
            await asyncio.Event().wait()
        finally:
            closed.append(form)

    async def writer(_message: bytes, context: AsyncFakeContext) -> None:
        try:
            await context.write(b"1")
            await asyncio.Event().wait()
        finally:
            closed.append(form)

    behavior: Any = generator if form == "generator" else writer
    serve = handler(async_interceptor(limits=Concurrency(1, 60)), behavior, "unary_stream")

    async def main() -> None:
        for _ in range(2):
            context = AsyncFakeContext()
            task = asyncio.create_task(serve(b"", context))
            await context.has_written.wait()
            with pytest.raises(AbortedError):
                await serve(b"", AsyncFakeContext())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert closed == [form, form]


def test_a_blocking_handler_of_an_async_server_is_limited_in_its_thread() -> None:
    serve = handler(async_interceptor(limits="1/minute"), echo)
    assert statuses(serve, 2) == [None, EXHAUSTED]
