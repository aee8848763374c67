"""Limits of views: functions and classes, sync and async, with the middleware and without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from headgate import Concurrency
from headgate.errors import OptionError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.django import limit, report
from headgate.responses import ResponseOptions
from headgate.testing import ManualClock
from tests.support.django_project import (
    OURS,
    SIGNING,
    fine,
    finely,
    get,
    project,
    statuses,
    statuses_async,
)

if TYPE_CHECKING:
    from collections.abc import Callable


both_ways = pytest.mark.parametrize("middleware", [(), (OURS,)], ids=["alone", "behind"])


def by_user(request: HttpRequest) -> Any:
    return request.user.pk  # None for who has not signed in


@both_ways
def test_a_view_has_a_limit_of_its_own(middleware: tuple[str, ...]) -> None:
    views = {"a": limit("2/minute")(fine), "b": limit("1/minute")(finely), "c": fine}
    with project(views, middleware=middleware) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
        assert statuses(client, "/b", 2) == [200, 429]
        assert statuses(client, "/c", 5) == [200] * 5
        assert "X-RateLimit-Limit" not in get(client, "/c").headers
    with project(views, middleware=middleware):
        assert statuses_async("/a", 3) == [200, 200, 429]
        assert statuses_async("/b", 2) == [200, 429]


@both_ways
def test_headers_are_sent_once_and_name_the_view(middleware: tuple[str, ...]) -> None:
    with project({"a": limit("1/minute")(fine)}, middleware=middleware) as client:
        passed, refused = get(client, "/a"), get(client, "/a")
        assert passed.headers["RateLimit-Policy"] == '"fine";q=1;w=60'
        assert "Retry-After" not in passed.headers
        assert refused.headers["RateLimit-Policy"] == '"fine";q=1;w=60'
        assert refused.headers["Retry-After"] == "60"
        assert refused.json()["limit"] == "fine"


@both_ways
@pytest.mark.parametrize("view", [fine, finely])
def test_stacked_limits_are_one_check_all_or_nothing(
    middleware: tuple[str, ...], view: Callable[..., Any]
) -> None:
    stacked = limit("3/hour", name="slow")(limit("1/minute", name="quick")(view))
    clock = ManualClock()
    with project({"a": stacked}, middleware=middleware, clock=clock) as client:
        for _ in range(3):
            assert statuses(client, "/a", 3) == [200, 429, 429]
            clock.advance(60)
        assert get(client, "/a").json()["limit"] == "slow"


def test_limits_with_another_decorator_between_them_are_all_or_nothing_too() -> None:
    @limit("3/hour", name="slow")
    @never_cache
    @limit("1/minute", name="quick")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    for middleware in [(), (OURS,)]:
        clock = ManualClock()
        with project({"a": view}, middleware=middleware, clock=clock) as client:
            for _ in range(3):
                assert statuses(client, "/a", 3) == [200, 429, 429]
                clock.advance(60)
            assert get(client, "/a").json()["limit"] == "slow"


@both_ways
def test_a_refusal_says_one_thing_only(middleware: tuple[str, ...]) -> None:
    spread = {"jitter": 1.0}
    inner = never_cache(limit("1/hour")(fine))
    views = {"a": limit("9/hour")(inner)}
    with project(views, middleware=middleware, responses=spread) as client:
        get(client, "/a")
        for _ in range(5):
            refused = get(client, "/a")
            assert refused.headers["Retry-After"] == str(refused.json()["retry_after"])


@both_ways
def test_a_view_may_answer_in_its_own_way_what_an_inner_one_refused(
    middleware: tuple[str, ...],
) -> None:
    inner = limit("1/hour", name="inner")(fine)

    @limit("5/hour", name="outer")
    def outer(request: HttpRequest) -> HttpResponse:
        if inner(request).status_code == 429:
            later = {"Retry-After": "7"} if "later" in request.GET else None
            return HttpResponse("older", status=503 if later else 200, headers=later)
        return HttpResponse("newer")

    with project({"a": outer}, middleware=middleware) as client:
        assert get(client, "/a").content == b"newer"
        older = get(client, "/a")
        assert older.status_code == 200
        assert "Retry-After" not in older.headers
        assert get(client, "/a?later").headers["Retry-After"] == "7"


def test_an_outer_limit_of_one_route_is_not_for_another() -> None:
    inner = limit("3/minute")(fine)
    with project({"a": limit("1/minute")(inner), "b": limit("2/minute")(inner), "c": inner}) as c:
        assert statuses(c, "/a", 2) == [200, 429]
        assert statuses(c, "/b", 3) == [200, 200, 429]
        assert statuses(c, "/c", 2) == [429, 429]  # the inner limit of 3 is used up


def test_functions_get_the_request_of_django() -> None:
    view = limit(
        lambda request: "4/minute" if request.user.pk == "paying" else "2/minute",
        key=by_user,
        cost=lambda request: int(request.GET.get("cost", 1)),
        exempt_when=lambda request: request.user.pk == "root",
    )(fine)
    with project({"a": view}, middleware=(SIGNING, OURS)) as client:
        assert statuses(client, "/a", 3, x_user="ann") == [200, 200, 429]
        assert statuses(client, "/a", 3) == [200, 200, 429]
        assert statuses(client, "/a?cost=2", 3, x_user="paying") == [200, 200, 429]
        assert statuses(client, "/a", 9, x_user="root") == [200] * 9


def test_functions_of_an_async_view_may_be_async() -> None:
    async def key(request: HttpRequest) -> str | None:
        await asyncio.sleep(0)
        return request.headers.get("X-Key")

    with project({"a": limit("1/minute", key=key)(finely)}, middleware=()):
        assert statuses_async("/a", 2) == [200, 429]
    with pytest.raises(UsageError, match="key is an async function"):
        limit("1/minute", key=key)(fine)


@both_ways
def test_the_real_cost_is_settled_when_it_is_reported(middleware: tuple[str, ...]) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        report(request, tokens=int(request.GET["used"]))
        report(request, {"other-name": 1})
        return HttpResponse("fine")

    limited = limit("100/hour", name="tokens", cost=50, is_estimate=True)(view)
    with project({"a": limited}, middleware=middleware) as client:
        assert statuses(client, "/a?used=10", 3) == [200] * 3
        assert get(client, "/a?used=90").headers["X-RateLimit-Remaining"] == "20"
        assert statuses(client, "/a?used=1", 1) == [429]


def test_report_needs_somebody_to_report_to() -> None:
    with pytest.raises(UsageError, match="without limits"):
        report(RequestFactory().get("/"), tokens=1)


@both_ways
def test_slots_are_free_after_a_response_and_after_an_error(middleware: tuple[str, ...]) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        if "fail" in request.GET:
            raise ValueError
        return HttpResponse("fine")

    async def view_async(request: HttpRequest) -> HttpResponse:
        return view(request)

    for one in (view, view_async):
        limited = limit(Concurrency(1, 60))(one)
        with project({"a": limited}, middleware=middleware):
            client = Client(raise_request_exception=False)
            assert statuses(client, "/a", 3) == [200] * 3
            assert statuses(client, "/a?fail", 3) == [500] * 3
            assert statuses_async("/a", 2) == [200] * 2


class Sync(View):
    @method_decorator(limit("1/minute"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")


@method_decorator([limit("9/hour", name="slow"), limit("1/minute")], name="dispatch")
class Async(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse("fine")


@method_decorator(limit("2/minute"), name="dispatch")
@method_decorator(limit("3/minute"), name="dispatch")
class Twice(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")


@method_decorator(limit("2/minute"), name="dispatch")
class Other(Twice):
    pass


@both_ways
def test_methods_of_classes_are_limited(middleware: tuple[str, ...]) -> None:
    views = {"a": Sync.as_view(), "b": Async.as_view(), "c": limit("1/minute")(Twice.as_view())}
    with project(views, middleware=middleware) as client:
        assert statuses(client, "/a", 2) == [200, 429]
        assert client.post("/a").status_code == 200
        assert get(client, "/a").json()["limit"] == "Sync.get"
        assert statuses(client, "/b", 2) == [200, 429]
        assert (
            get(client, "/b").headers["RateLimit-Policy"] == '"slow";q=9;w=3600, "Async";q=1;w=60'
        )
        assert get(client, "/c").headers["RateLimit-Policy"].count("Twice") == 3
    with project(views, middleware=middleware):
        assert statuses_async("/b", 2) == [200, 429]


def test_an_async_class_never_blocks_the_loop() -> None:
    class NoBlocking(RequestLimiter):
        @property
        def runner(self) -> Any:
            raise AssertionError("a blocking call in an event loop")

    limiter = NoBlocking()

    @method_decorator(limit("1/minute", limiter=limiter), name="dispatch")
    class Limited(Async):
        pass

    with project({"a": Limited.as_view()}):
        assert statuses_async("/a", 2) == [200, 429]


def test_each_class_has_a_counter_of_its_own_where_dispatch_is_inherited() -> None:
    with project({"a": Twice.as_view(), "b": Other.as_view()}) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
        assert statuses(client, "/b", 3) == [200, 200, 429]


def test_a_limiter_of_its_own_counts_apart() -> None:
    limiter = RequestLimiter(limits="1/minute", clock=ManualClock())
    limited = limit("1/minute", limiter=limiter, name="same")(fine)
    with project({"a": limited, "b": limit("1/minute", name="same")(fine)}) as client:
        assert statuses(client, "/a", 2) == [200, 429]
        assert statuses(client, "/b", 2) == [200, 429]


def test_a_limiter_of_its_own_refuses_in_its_own_way() -> None:
    limiter = RequestLimiter(responses=ResponseOptions(x_ratelimit=False))
    with project({"a": limit("1/hour", limiter=limiter)(fine)}) as client:
        get(client, "/a")
        refused = get(client, "/a")
        assert "RateLimit-Policy" in refused.headers
        assert "X-RateLimit-Limit" not in refused.headers


def test_mistakes_are_told_of_when_the_view_is_made() -> None:
    with pytest.raises(OptionError, match="expected a RequestLimiter"):
        limit("1/minute", limiter="memory://")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"name 'a' is given twice"):
        limit("1/minute", name="a")(limit("2/minute", name="a")(fine))


def test_a_method_without_method_decorator_is_told_of() -> None:
    class Wrong(View):
        @limit("1/minute")
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("fine")

    with project({"a": Wrong.as_view()}) as client, pytest.raises(UsageError, match="method_deco"):
        get(client, "/a")


def test_what_is_no_response_is_left_to_django() -> None:
    def nothing(request: HttpRequest) -> None:
        return None

    async def nothing_async(request: HttpRequest) -> None:
        return None

    for view in (nothing, nothing_async):
        limited = limit(Concurrency(1, 60))(view)
        with project({"a": limited}, middleware=()) as client:
            for _ in range(2):
                with pytest.raises(ValueError, match="returned None"):
                    get(client, "/a")


def test_a_cancelled_request_frees_its_slot() -> None:
    started: list[asyncio.Event] = []

    async def waiting(request: HttpRequest) -> HttpResponse:
        if "quick" not in request.GET:
            started[-1].set()
            await asyncio.Event().wait()
        return HttpResponse("fine")

    async def ask() -> list[int]:
        started.append(asyncio.Event())
        client = AsyncClient()
        asking = asyncio.create_task(client.get("/a"))
        await started[-1].wait()
        found = [(await client.get("/a?quick")).status_code]
        asking.cancel()
        await asyncio.wait([asking])
        return [*found, (await client.get("/a?quick")).status_code]

    for middleware in [(), (OURS,)]:
        with project({"a": limit(Concurrency(1, 60))(waiting)}, middleware=middleware):
            assert asyncio.run(ask()) == [429, 200]
