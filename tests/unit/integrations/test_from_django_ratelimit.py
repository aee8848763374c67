"""What docs/migration.md says is right here: each trap as a project that is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from headgate import RateLimiter
from headgate.errors import NotationError, StoreError
from headgate.integrations.django import limit
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.async_stores import Gone, Waiting
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
from tests.unit.integrations.django import conftest  # noqa: F401 (it configures Django)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.stores.operations import Operation

PREFLIGHT = {"origin": "https://shop.test", "access_control_request_method": "POST"}


class Failing(Store):
    """A store that cannot be reached."""

    def run(self, operation: Operation[Any]) -> Any:
        raise StoreError("gone")


class Wording:
    """A middleware that says in its own words that there were too many requests."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code == 429:
            response.content = b"slow down"
            response["Content-Type"] = "text/plain"
        return response


def by_user(request: Any) -> Any:
    return request.user.pk


def from_addresses(where: str, *peers: str, **headers: str) -> list[int]:
    """What each of *peers* is answered."""
    return [Client(REMOTE_ADDR=one).get(where, headers=headers).status_code for one in peers]


# ---- who is counted ---------------------------------------------------------------------------


@pytest.mark.parametrize("key", [by_user, lambda request: request.headers.get("x-api-key", "")])
def test_callers_without_a_key_have_a_counter_each(key: Any) -> None:
    view = limit("1/minute", key=key)(fine)
    with project({"a": view}, middleware=(SIGNING, OURS)) as client:
        assert from_addresses("/a", "203.0.113.1", "203.0.113.2", "203.0.113.1") == [200, 200, 429]
        assert statuses(client, "/a", 2, x_user="ann", x_api_key="k-1") == [200, 429]


def test_clients_behind_trusted_proxies_are_distinguished() -> None:
    with project({"a": fine}, limits="1/minute", trusted_proxies=["10.0.0.0/8"]):
        proxy = Client(REMOTE_ADDR="10.0.0.1")
        for address in ("198.51.100.1", "198.51.100.2, 10.0.0.2"):
            assert statuses(proxy, "/a", 2, x_forwarded_for=address) == [200, 429]
        assert statuses(proxy, "/a", 2) == [200, 429]


def test_forwarded_addresses_of_untrusted_peers_are_ignored() -> None:
    with project({"a": fine}, limits="1/minute", trusted_proxies=["10.0.0.0/8"]) as client:
        found = [get(client, "/a", x_forwarded_for=f"198.51.100.{n}") for n in range(3)]
        assert [one.status_code for one in found] == [200, 429, 429]


def test_a_unix_socket_is_not_an_error() -> None:
    with project({"a": fine}, limits="1/minute", trusted_proxies=["127.0.0.1"]):
        assert from_addresses("/a", "", "") == [200, 429]
        assert statuses(Client(REMOTE_ADDR=""), "/a", 2, x_forwarded_for="198.51.100.1") == [
            200,
            429,
        ]


def test_two_ipv4_addresses_written_as_ipv6_are_two_clients() -> None:
    with project({"a": fine}, limits="1/minute"):
        assert from_addresses("/a", "::ffff:1.2.3.4", "::ffff:1.2.3.5", "1.2.3.4") == [
            200,
            200,
            429,
        ]


def test_a_network_of_ipv6_is_one_client() -> None:
    with project({"a": fine}, limits="1/minute"):
        assert from_addresses("/a", "2001:db8::1", "2001:db8::2") == [200, 429]


def test_names_and_keys_that_run_together_are_different_counters() -> None:
    views = {
        "a": limit("1/minute", name="v2", key=lambda _: "1")(fine),
        "c": limit("1/minute", name="v", key=lambda _: "21")(fine),
    }
    with project(views) as client:
        assert [get(client, where).status_code for where in ("/a", "/c")] == [200, 200]


# ---- when things break ------------------------------------------------------------------------


def test_an_outage_is_not_a_500() -> None:
    views = {
        "open": limit("3/minute")(fine),
        "closed": limit("1/minute", on_store_failure="fail_closed")(fine),
        "local": limit("1/minute", on_store_failure="local")(fine),
    }
    with project(views, limits="9/minute", store=Failing()) as client:
        assert statuses(client, "/open", 4) == [200, 200, 200, 429]
        assert statuses(client, "/closed", 2) == [503, 503]
        assert statuses(client, "/local", 2) == [200, 429]


def test_an_outage_is_not_a_500_of_async_views_either() -> None:
    with project({"a": limit("2/minute")(finely)}, store=Gone()):
        assert statuses_async("/a", 3) == [200, 200, 429]


def test_an_error_of_a_key_function_is_raised_as_it_is() -> None:
    def wrong(request: HttpRequest) -> str:
        raise ZeroDivisionError("mine")

    with (
        project({"a": limit("1/minute", key=wrong)(fine)}) as client,
        pytest.raises(ZeroDivisionError, match="mine"),
    ):
        get(client, "/a")


@pytest.mark.parametrize("text", ["5/fortnight", "5"])
def test_a_rate_that_is_not_one_is_an_error_at_once(text: str) -> None:
    with pytest.raises(NotationError, match="not a limit"):
        limit(text)


@pytest.mark.parametrize("text", ["2/m", "2/M", "2/1m", "2/60s", "2/minute"])
def test_a_minute_is_a_minute_however_it_is_written(text: str) -> None:
    clock = ManualClock(600)
    with project({"a": limit(f"{text} fixed_window")(fine)}, clock=clock) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
        clock.advance(59)
        assert statuses(client, "/a", 1) == [429]
        clock.advance(1)
        assert statuses(client, "/a", 1) == [200]


# ---- async views, streams ---------------------------------------------------------------------


@pytest.mark.parametrize("middleware", [(), (OURS,)], ids=["alone", "behind"])
def test_async_views_are_limited_and_answer(middleware: tuple[str, ...]) -> None:
    with project({"a": limit("2/minute")(finely)}, middleware=middleware):
        assert statuses_async("/a", 3) == [200, 200, 429]


def test_the_event_loop_runs_while_the_store_answers() -> None:
    others = 0

    async def ask_while_others_run() -> int:
        nonlocal others
        asking = asyncio.ensure_future(AsyncClient().get("/a"))
        while not asking.done():
            others += 1
            await asyncio.sleep(0)
        return (await asking).status_code

    with project({"a": limit("9/minute")(finely)}, limits="9/minute", store=Waiting(turns=50)):
        assert asyncio.run(ask_while_others_run()) == 200
    assert others > 200  # two questions, each of a hundred turns


def test_a_stream_goes_out_piece_by_piece() -> None:
    made_so_far = []

    @limit("5/minute", charge_when=lambda responded: responded.status_code == 200)
    def streamed(request: HttpRequest) -> StreamingHttpResponse:
        def pieces() -> Iterator[str]:
            for piece in ("one", "two"):
                made_so_far.append(piece)
                yield piece

        return StreamingHttpResponse(pieces())

    with project({"a": streamed}) as client:
        arriving = iter(get(client, "/a"))
        assert next(arriving) == b"one"
        assert made_so_far == ["one"]
        assert list(arriving) == [b"two"]


# ---- what counts ------------------------------------------------------------------------------


def test_what_the_minute_denies_does_not_use_up_the_hour() -> None:
    view = limit("4/hour")(limit("1/minute")(fine))
    with project({"a": view}) as client:
        assert statuses(client, "/a", 5) == [200, 429, 429, 429, 429]
        shown = get(client, "/a").headers["RateLimit"]
    assert sorted(part.split(";")[1] for part in shown.split(", ")) == ["r=0", "r=3"]


def test_head_counts_like_get() -> None:
    view = limit("2/minute", exempt_when=lambda request: request.method not in {"GET", "HEAD"})(
        fine
    )
    with project({"a": view}) as client:
        found = [client.get("/a"), client.head("/a"), client.head("/a"), client.get("/a")]
        assert [one.status_code for one in found] == [200, 200, 429, 429]
        assert client.post("/a").status_code == 200


def test_preflights_use_up_nothing_and_are_no_way_past_the_limit() -> None:
    headers = {name.replace("_", "-"): value for name, value in PREFLIGHT.items()}
    with project({"a": fine}, limits="2/minute") as client:
        found = [client.options("/a", headers=headers).status_code for _ in range(3)]
        assert found == [200, 200, 429]  # the view answers any method
        assert statuses(client, "/a", 3) == [200, 200, 429]


def test_pages_that_are_not_there_and_included_urls_do_not_escape() -> None:
    views = [path("sub/", ([path("page", fine)], "sub", "sub"))]
    with project(views, limits="2/minute") as client:
        found = [get(client, where).status_code for where in ("/sub/page", "/x", "/sub/page")]
        assert found == [200, 404, 429]


def test_views_of_one_group_share_a_counter() -> None:
    grouped = limit("2/minute", name="searches")
    with project({"a": grouped(fine), "b": grouped(fine)}) as client:
        found = [get(client, where).status_code for where in ("/a", "/b", "/a")]
        assert found == [200, 200, 429]


def test_a_rate_by_the_request_may_be_none() -> None:
    def rate(request: HttpRequest) -> str | None:
        return None if request.headers.get("x-user") == "root" else "1/minute"

    with project({"a": limit(rate)(fine)}) as client:
        assert statuses(client, "/a", 2) == [200, 429]
        assert statuses(client, "/a", 3, x_user="root") == [200] * 3


def test_methods_of_classes_are_limited() -> None:
    @method_decorator(limit("1/minute"), name="post")
    class Page(View):
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("read")

        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("written")

    with project({"a": Page.as_view()}) as client:
        assert [client.post("/a").status_code for _ in range(2)] == [200, 429]
        assert statuses(client, "/a", 2) == [200, 200]


# ---- headers ----------------------------------------------------------------------------------


def test_a_denial_is_a_429_that_says_when_to_retry() -> None:
    with project({"a": limit("2/minute")(fine)}) as client:
        replies = [get(client, "/a") for _ in range(3)]

    assert [one.status_code for one in replies] == [200, 200, 429]
    assert ["Retry-After" in one.headers for one in replies] == [False, False, True]
    assert replies[-1].headers["Retry-After"] == "30"
    assert all(one.headers["X-RateLimit-Reset"].isdigit() for one in replies)
    assert replies[-1].json()["error"] == "rate_limit_exceeded"


def test_scripts_of_other_origins_can_read_the_headers() -> None:
    with project({"a": limit("1/minute")(fine)}) as client:
        for status in (200, 429):
            reply = get(client, "/a", origin="https://shop.test")
            exposed = reply.headers["Access-Control-Expose-Headers"].lower().split(", ")
            assert reply.status_code == status
            assert "x-ratelimit-remaining" in exposed
            assert ("retry-after" in exposed) is (status == 429)


def test_a_middleware_above_may_word_refusals() -> None:
    wording = f"{__name__}.Wording"
    with project({"a": fine}, middleware=(wording, OURS), limits="1/minute") as client:
        reply = [get(client, "/a") for _ in range(2)][-1]

    assert (reply.status_code, reply.content) == (429, b"slow down")
    assert reply.headers["Retry-After"] == "60"


# ---- in a view's own code ---------------------------------------------------------------------


def test_a_view_can_check_without_denying() -> None:
    searches = RateLimiter("1/minute", clock=ManualClock())

    def search(request: HttpRequest) -> HttpResponse:
        is_limited = not searches.hit(request.META["REMOTE_ADDR"])
        return HttpResponse("cached" if is_limited else "found")

    with project({"a": search}) as client:
        assert [get(client, "/a").content for _ in range(2)] == [b"found", b"cached"]
    assert searches.peek("127.0.0.1").remaining == 0


def test_a_limit_in_shadow_mode_counts_and_denies_nothing() -> None:
    would_refuse = []

    @limit("1/minute", mode="shadow")
    def view(request: Any) -> HttpResponse:
        would_refuse.append(any(grant.verdict.would_deny for grant in request.headgate.results))
        return HttpResponse("fine")

    with project({"a": view}) as client:
        assert statuses(client, "/a", 3) == [200, 200, 200]
    assert would_refuse == [False, True, True]
