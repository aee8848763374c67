"""The throttle for Django REST framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, authentication_classes, throttle_classes
from rest_framework.response import Response
from rest_framework.throttling import ScopedRateThrottle
from rest_framework.views import APIView

from headgate import Concurrency
from headgate.errors import StoreError
from headgate.integrations.django import limit
from headgate.integrations.drf import RateLimitThrottle
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.django_project import OURS, User, get, project, statuses, statuses_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from rest_framework.request import Request

both_ways = pytest.mark.parametrize("middleware", [(), (OURS,)], ids=["alone", "behind"])


class GoneStore(Store):
    def run(self, operation: Any) -> Any:
        raise StoreError("gone")


class ByHeader(BaseAuthentication):
    def authenticate(self, request: Request) -> Any:
        name = request.headers.get("X-User")
        return (User(name), None) if name else None


class Two(RateLimitThrottle):
    limits = "2/minute"


class Hourly(RateLimitThrottle):
    limits = "3/hour"


def api(*throttles: type, **attributes: Any) -> Callable[..., Any]:
    """An API view with *throttles*."""

    class Limited(APIView):
        authentication_classes = [ByHeader]  # noqa: RUF012
        throttle_classes = throttles

        def get(self, request: Request) -> Response:
            return Response({"fine": True})

    for name, value in attributes.items():
        setattr(Limited, name, value)
    return Limited.as_view()


def rates(**scopes: str | None) -> dict[str, Any]:
    return {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_RATES": scopes}}


@both_ways
def test_a_view_is_limited_and_both_kinds_of_response_tell_of_it(
    middleware: tuple[str, ...],
) -> None:
    with project({"a": api(Two)}, middleware=middleware) as client:
        passed = get(client, "/a")
        assert passed.headers["X-RateLimit-Remaining"] == "1"
        assert passed.headers["RateLimit-Policy"] == '"Two";q=2;w=60'
        assert "Retry-After" not in passed.headers
        get(client, "/a")
        refused = get(client, "/a")
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "30"
        assert refused.headers["X-RateLimit-Remaining"] == "0"
        assert refused.headers["RateLimit-Policy"] == '"Two";q=2;w=60'
        assert refused.json()["detail"].endswith("available in 30 seconds.")


@both_ways
def test_users_are_counted_by_who_they_are_and_others_by_address(
    middleware: tuple[str, ...],
) -> None:
    with project({"a": api(Two)}, middleware=middleware) as client:
        assert statuses(client, "/a", 3, x_user="ann") == [200, 200, 429]
        assert statuses(client, "/a", 3, x_user="bob") == [200, 200, 429]
        assert statuses(client, "/a", 3) == [200, 200, 429]
        assert statuses(client, "/a", 3, x_user="127.0.0.1") == [200, 200, 429]


def test_it_is_the_same_under_asgi() -> None:
    with project({"a": api(Two)}):
        assert statuses_async("/a", 3) == [200, 200, 429]


def test_no_anonymous_user_is_nobody() -> None:
    with project({"a": api(Two)}, others={"REST_FRAMEWORK": {"UNAUTHENTICATED_USER": None}}) as c:
        assert statuses(c, "/a", 3) == [200, 200, 429]


def test_the_address_is_what_the_gate_believes() -> None:
    with project({"a": api(Two)}) as client:
        asked = [get(client, "/a", x_forwarded_for=f"9.9.9.{n}").status_code for n in range(3)]
        assert asked == [200, 200, 429]


@both_ways
def test_all_throttles_of_a_view_are_all_or_nothing(middleware: tuple[str, ...]) -> None:
    for order in [(Two, Hourly), (Hourly, Two)]:
        clock = ManualClock()
        with project({"a": api(*order)}, middleware=middleware, clock=clock) as client:
            assert statuses(client, "/a", 6) == [200, 200, 429, 429, 429, 429]
            clock.advance(60)
            assert statuses(client, "/a", 2) == [200, 429]
            # One of two and three of three are used: both have to be waited for.
            clock.advance(30)
            get(client, "/a")
            assert get(client, "/a").headers["Retry-After"] == str(20 * 60 - 90)


@both_ways
def test_those_that_come_after_a_refusal_charge_nothing_and_say_how_long_they_are(
    middleware: tuple[str, ...],
) -> None:
    clock = ManualClock()
    views = {"a": api(Two, Hourly), "b": api(Hourly), "c": api(Two)}
    with project(views, middleware=middleware, clock=clock) as client:
        statuses(client, "/b", 3)  # all of the hour
        statuses(client, "/c", 2)  # all of the minute
        response = get(client, "/a")
        assert response.headers["Retry-After"] == str(20 * 60)  # not the 30 s of the first
        assert response.headers["RateLimit-Policy"].count(";q=") == 2
        clock.advance(20 * 60)
        assert statuses(client, "/a", 2) == [200, 429]


@both_ways
def test_when_to_come_back_is_said_by_the_framework_alone(middleware: tuple[str, ...]) -> None:
    with project({"a": api(Two)}, middleware=middleware, responses={"jitter": 1.0}) as client:
        statuses(client, "/a", 2)
        assert [get(client, "/a").headers["Retry-After"] for _ in range(5)] == ["30"] * 5


def test_rates_of_scopes_are_read_as_the_framework_writes_them() -> None:
    class Burst(RateLimitThrottle):
        scope = "burst"

    for text in ("2/s", "2/sec", "2/second", "2/m", "2/min", "2/minute", "2/h", "2/hour", "2/day"):
        with project({"a": api(Burst)}, others=rates(burst=text)) as client:
            assert statuses(client, "/a", 3) == [200, 200, 429]
    with project({"a": api(Burst)}, others=rates(burst=None)) as client:
        assert statuses(client, "/a", 3) == [200] * 3
    with (
        project({"a": api(Burst)}, others=rates(other="2/s")) as client,
        pytest.raises(ImproperlyConfigured, match="scope 'burst'"),
    ):
        get(client, "/a")


def test_the_scope_of_a_view_is_used_where_the_throttle_has_none() -> None:
    views = {
        "a": api(RateLimitThrottle, throttle_scope="uploads"),
        "b": api(RateLimitThrottle, throttle_scope="uploads"),
        "c": api(RateLimitThrottle, throttle_scope="others"),
        "d": api(RateLimitThrottle),
    }
    with project(views, others=rates(uploads="2/minute", others="1/minute")) as client:
        asked = [get(client, where).status_code for where in ("/a", "/b", "/a", "/c", "/c")]
        assert asked == [200, 200, 429, 200, 429]
        assert statuses(client, "/d", 3) == [200] * 3
        assert get(client, "/a").headers["RateLimit-Policy"] == '"uploads";q=2;w=60'


def test_what_depends_on_the_request_is_overridden() -> None:
    class Own(RateLimitThrottle):
        name = "own"

        def get_limits(self, request: Request, view: APIView) -> str:
            return "9/minute" if request.query_params.get("paid") else "2/minute"

        def get_key(self, request: Request, view: APIView) -> str:
            return request.query_params.get("key", "")

        def get_cost(self, request: Request, view: APIView) -> int:
            return 2

    with project({"a": api(Own)}) as client:
        assert statuses(client, "/a?key=a", 2) == [200, 429]
        assert statuses(client, "/a", 2) == [200, 429]
        assert statuses(client, "/a?key=b&paid=1", 5) == [200, 200, 200, 200, 429]
        assert get(client, "/a?key=a").headers["RateLimit-Policy"].startswith('"own";')


def test_a_cost_that_never_fits_has_no_wait() -> None:
    class Dear(RateLimitThrottle):
        limits = "2/minute"
        cost = 3

    with project({"a": api(Dear)}) as client:
        response = get(client, "/a")
        assert response.status_code == 429
        assert "Retry-After" not in response.headers


@both_ways
def test_an_outage_is_not_the_callers_fault(middleware: tuple[str, ...]) -> None:
    class Closed(Two):
        on_store_failure = "fail_closed"

    views = {"a": api(Two), "b": api(Closed)}
    with project(views, middleware=middleware, store=GoneStore()) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
        response = get(client, "/b")
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) >= 1


def test_a_limit_of_how_many_at_once_needs_the_middleware() -> None:
    class Slots(RateLimitThrottle):
        limits = Concurrency(1, 60)

    with project({"a": api(Slots)}) as client:
        assert statuses(client, "/a", 3) == [200] * 3
    with (
        project({"a": api(Slots)}, middleware=()) as client,
        pytest.raises(ImproperlyConfigured, match="RateLimitMiddleware"),
    ):
        get(client, "/a")


@both_ways
def test_function_views_take_throttles_and_limits(middleware: tuple[str, ...]) -> None:
    @api_view(["GET"])
    @authentication_classes([ByHeader])
    @throttle_classes([Two])
    @limit("1/minute", key=lambda request: request.user.pk, name="inner")
    def view(request: Request) -> Response:
        return Response({"fine": True})

    with project({"a": view}, middleware=middleware) as client:
        assert statuses(client, "/a", 3, x_user="ann") == [200, 429, 429]
        response = get(client, "/a", x_user="bob")
        assert response.headers["RateLimit-Policy"].startswith('"Two";q=2;w=60')


@both_ways
def test_a_limit_below_a_throttle_sees_the_end_of_the_request(middleware: tuple[str, ...]) -> None:
    @api_view(["GET"])
    @throttle_classes([Hourly])
    @limit(Concurrency(1, 60))
    def view(request: Request) -> Response:
        return Response({"fine": True})

    with project({"a": view}, middleware=middleware) as client:
        assert statuses(client, "/a", 4) == [200, 200, 200, 429]


@both_ways
def test_what_calls_itself_a_preflight_is_counted(middleware: tuple[str, ...]) -> None:
    asking = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    with project({"a": api(Two)}, middleware=middleware) as client:
        found = [client.options("/a", headers=asking).status_code for _ in range(3)]
        assert found == [200, 200, 429]


@both_ways
def test_a_limit_below_a_throttle_that_refuses_gives_back_what_that_charged(
    middleware: tuple[str, ...],
) -> None:
    @api_view(["GET"])
    @throttle_classes([Hourly])
    @limit("1/minute")
    def view(request: Request) -> Response:
        return Response({"fine": True})

    clock = ManualClock()
    with project({"a": view}, middleware=middleware, clock=clock) as client:
        for _ in range(3):
            assert statuses(client, "/a", 3) == [200, 429, 429]
            clock.advance(60)
        assert statuses(client, "/a", 1) == [429]


def test_it_stands_beside_throttles_of_the_framework() -> None:
    views = {"a": api(ScopedRateThrottle, Two)}
    with project(views) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
