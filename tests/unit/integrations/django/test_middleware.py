"""The middleware under WSGI and ASGI: who is limited, and the headers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory

from headgate import Concurrency
from headgate.engine.request import Request
from headgate.integrations import RequestLimiter
from headgate.integrations.django import DjangoRequest, RateLimitMiddleware, current_limiter, limit
from headgate.integrations.request_context import RequestContext
from headgate.policy.loader import read_policy
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


def test_the_limit_of_the_project_is_for_all_views_together() -> None:
    with project({"a": fine, "b": finely}, limits="3/minute") as client:
        assert [get(client, where).status_code for where in ("/a", "/b", "/a", "/b")] == [
            200,
            200,
            200,
            429,
        ]


def test_it_is_the_same_under_asgi() -> None:
    with project({"a": fine, "b": finely}, limits="2/minute"):
        assert statuses_async("/b", 3) == [200, 200, 429]
    with project({"a": fine, "b": finely}, limits="2/minute"):
        assert statuses_async("/a", 3) == [200, 200, 429]


def test_a_refused_head_has_no_body_but_its_length() -> None:
    with project({}, limits="1/minute"):
        middleware: Any = RateLimitMiddleware(fine)
        middleware(RequestFactory().get("/a"))
        response = middleware(RequestFactory().head("/a"))
        assert response.status_code == 429
        assert response.content == b""
        assert int(response.headers["Content-Length"]) > 0


def test_a_passage_that_was_begun_outside_of_django_goes_on_inside() -> None:
    limiter = RequestLimiter(limits="1/minute", clock=ManualClock())
    context = RequestContext(limiter, Request(), is_managed=True)
    with project({"a": limit("5/minute")(fine)}, limits="9/minute") as client:
        response = client.get("/a", headgate=context)
        assert "X-RateLimit-Limit" not in response.headers  # which is for monitoring
        assert [shown.name for shown in context.rule_answers] == ["default", "fine"]


def preflights(client: Client, times: int) -> list[int]:
    asking = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    return [client.options("/a", headers=asking).status_code for _ in range(times)]


@pytest.mark.parametrize("middleware", [(), (OURS,)])
def test_what_calls_itself_a_preflight_is_a_call_like_any_other_to_a_view(
    middleware: tuple[str, ...],
) -> None:
    for view in (fine, finely):
        with project({"a": limit("2/minute")(view)}, middleware=middleware) as client:
            assert [*statuses(client, "/a", 1), *preflights(client, 3)] == [200, 200, 429, 429]


def test_what_the_app_says_of_policies_of_its_own_stays() -> None:
    def telling(request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine", headers={"RateLimit-Policy": '"own";q=5;w=1'})

    with project({"a": telling}, limits="2/minute") as client:
        found = get(client, "/a").headers["RateLimit-Policy"]
        assert found == '"own";q=5;w=1, "default";q=2;w=60'


@pytest.mark.parametrize("no_key", [None, ""])
def test_who_is_nobody_is_counted_by_address(no_key: str | None) -> None:
    def key(request: Request) -> str | None:
        return request.header("x-key") or no_key

    with project({"a": fine}, limits="1/minute", key=key) as client:
        assert statuses(client, "/a", 2) == [200, 429]
        assert client.get("/a", REMOTE_ADDR="198.51.100.1").status_code == 200
        assert statuses(client, "/a", 2, x_key="k") == [200, 429]


def test_a_peer_without_an_address_is_local() -> None:
    factory = RequestFactory()
    for environ in ({"REMOTE_ADDR": ""}, {"REMOTE_ADDR": None}):
        assert DjangoRequest(factory.get("/", **environ)).peer == "127.0.0.1"


def test_forwarded_addresses_are_believed_of_trusted_proxies_only() -> None:
    with project({"a": fine}, limits="1/minute") as client:
        assert [get(client, "/a", x_forwarded_for=f"9.9.9.{n}").status_code for n in (1, 2)] == [
            200,
            429,
        ]
    with project({"a": fine}, limits="1/minute", trusted_proxies=["127.0.0.1"]) as client:
        assert [get(client, "/a", x_forwarded_for=f"9.9.9.{n}").status_code for n in (1, 2)] == [
            200,
            200,
        ]


def test_the_key_function_of_the_project_has_the_request_of_django() -> None:
    def key(request: Any) -> Any:
        return request.django.user.pk

    chain = (SIGNING, OURS)
    with project({"a": fine}, middleware=chain, limits="1/minute", key=key) as client:
        assert statuses(client, "/a", 2, x_user="ann") == [200, 429]
        assert statuses(client, "/a", 2, x_user="bob") == [200, 429]
        assert statuses(client, "/a", 2) == [200, 429]


def test_under_asgi_functions_may_be_async() -> None:
    async def key(request: Request) -> str | None:
        await asyncio.sleep(0)
        return request.header("x-key")

    async def ask() -> list[int]:
        client = AsyncClient()
        keys = ["a", "a", "b"]
        return [(await client.get("/a", headers={"X-Key": k})).status_code for k in keys]

    with project({"a": finely}, limits="1/minute", key=key):
        assert asyncio.run(ask()) == [200, 429, 200]


def test_an_error_of_a_key_function_is_the_apps_own() -> None:
    def key(request: Request) -> str:
        raise ZeroDivisionError

    with (
        project({"a": fine}, limits="1/minute", key=key) as client,
        pytest.raises(ZeroDivisionError),
    ):
        get(client, "/a")


def test_rules_that_count_by_endpoint_count_by_route() -> None:
    policy = read_policy(
        "{version: 1, rules: [{id: each, match: {}, key_by: [endpoint], limit: 2/minute}]}"
    )
    with project({"users/<int:id>/": fine, "a": fine}, policy=policy) as client:
        asked = ["/users/1/", "/users/2/", "/users/3/", "/a", "/none/1", "/none/2"]
        assert [get(client, where).status_code for where in asked] == [
            200,
            200,
            429,
            200,
            404,
            404,
        ]


def cached(inner: Any) -> Any:
    """A view that answers from a cache what the *inner* one refuses."""

    def view(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        if inner(request).status_code == 200:
            return HttpResponse("new")
        return StreamingHttpResponse(["old"]) if "stream" in request.GET else HttpResponse("old")

    return view


def cached_async(inner: Any) -> Any:
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("new" if (await inner(request)).status_code == 200 else "old")

    return view


@pytest.mark.parametrize("where", ["/a", "/a?stream"])
def test_a_view_that_answers_what_was_refused_inside_is_charged_for_it(where: str) -> None:
    inner = limit("3/minute", name="inner")(fine)
    outer = limit("5/minute", name="outer")(cached(inner))
    views: list[Any] = [(cached(inner), {"limits": "5/minute"}), (outer, {"middleware": ()})]
    for view, options in views:
        with project({"a": view}, **options) as client:
            assert statuses(client, where, 6) == [200] * 5 + [429]


def test_so_is_an_async_one() -> None:
    inner = limit("3/minute", name="inner")(finely)
    outer = limit("5/minute", name="outer")(cached_async(inner))
    views: list[Any] = [(cached_async(inner), {"limits": "5/minute"}), (outer, {"middleware": ()})]
    for view, options in views:
        with project({"a": view}, **options):
            assert statuses_async("/a", 6) == [200] * 5 + [429]


def test_a_gate_that_was_asked_outside_of_django_is_not_asked_again() -> None:
    with project({"a": fine}, limits="1/minute") as client:
        outside = RequestContext(RequestLimiter(), Request(), is_managed=True)
        outside.checked += (current_limiter(),)
        assert [client.get("/a", headgate=outside).status_code for _ in range(3)] == [200] * 3


def test_a_gate_that_nobody_asked_yet_is_asked_though_a_passage_is_of_it() -> None:
    with project({"a": fine}, limits="1/minute") as client:
        found = []
        for _ in range(2):
            outside = RequestContext(current_limiter(), Request(), is_managed=True)
            found.append(client.get("/a", headgate=outside).status_code)
        assert found == [200, 429]


def test_a_middleware_that_is_there_twice_counts_once() -> None:
    with project({"a": fine}, middleware=(OURS, OURS), limits="2/minute") as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
        assert statuses_async("/a", 1) == [429]


def test_it_waits_in_a_thread_if_a_middleware_below_it_blocks() -> None:
    with project({"a": fine}, middleware=(OURS, SIGNING), limits="2/minute"):
        assert statuses_async("/a", 3) == [200, 200, 429]


def test_a_request_as_headgate_sees_it() -> None:
    asked = RequestFactory(headers={"X-One": "1", "Accept": "text/html"}).post(
        "/a b/é", data=b"{}", content_type="application/json", SCRIPT_NAME="/app"
    )
    request = DjangoRequest(asked)
    assert (request.method, request.path, request.host) == ("POST", "/app/a%20b/%C3%A9", "")
    assert request.header("content-type") == "application/json"
    assert ("x-one", "1") in request.headers
    assert ("content-type", "application/json") in request.headers
    assert request.header("x-two") is None


def test_an_exception_that_django_does_not_convert_is_passed_on() -> None:
    def interrupted(request: HttpRequest) -> HttpResponse:
        raise KeyboardInterrupt

    with project({}, limits=Concurrency(1, 60)):
        for _ in range(2):  # and frees its slot
            with pytest.raises(KeyboardInterrupt):
                RateLimitMiddleware(interrupted)(RequestFactory().get("/"))
