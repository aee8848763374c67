"""What docs/migration.md says is right here: each trap as an app, and what it answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, StreamingResponse

from headgate.errors import NotationError
from headgate.integrations import RequestLimiter
from headgate.integrations.fastapi import (
    RateLimit,
    RateLimitMiddleware,
    TooManyRequests,
    exempt,
    limit,
)
from tests.support.asgi_client import Client, still_limiter, websocket
from tests.support.asgi_connection import drive, http
from tests.support.async_stores import Gone, Waiting

ORIGIN = {"origin": "https://shop.test"}
PREFLIGHT = {**ORIGIN, "access-control-request-method": "GET"}


def app_with(limiter: RequestLimiter | None = None, **options: Any) -> FastAPI:
    """An app with the middleware."""
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=limiter or still_limiter(**options))
    return app


def served(
    *decorators: Callable[[Any], Any], limiter: RequestLimiter | None = None, **options: Any
) -> FastAPI:
    """The same, with an endpoint at / that has *decorators*."""

    async def endpoint() -> str:
        return "fine"

    decorated: Any = endpoint
    for decorate in decorators:
        decorated = decorate(decorated)
    app = app_with(limiter, **options)
    app.add_api_route("/", decorated, methods=["GET", "HEAD"])
    return app


def user(request: Request) -> str | None:
    return request.headers.get("x-user")


# ---- who is counted ---------------------------------------------------------------------------


def test_a_caller_without_a_key_is_counted_by_address() -> None:
    app = served(limit("1/minute", key=user))
    client = Client(app)

    assert client.statuses("/", 3) == [200, 429, 429]
    assert Client(app, peer="203.0.113.8").statuses("/", 2) == [200, 429]
    assert client.statuses("/", 2, headers={"x-user": ""}) == [429, 429]
    assert client.statuses("/", 2, headers={"x-user": "ann"}) == [200, 429]


def test_each_caller_has_a_counter_whatever_the_parameter_is_called() -> None:
    app = served(limit("1/minute", key=lambda req: req.headers["x-user"]))

    for name in ("ann", "bob"):
        assert Client(app).statuses("/", 2, headers={"x-user": name}) == [200, 429]


def test_clients_behind_a_trusted_proxy_are_distinguished() -> None:
    proxy = Client(served(limits="1/minute", trusted_proxies=["10.0.0.0/8"]), peer="10.0.0.1")

    for address in ("198.51.100.1", "198.51.100.2"):
        assert proxy.statuses("/", 2, headers={"x-forwarded-for": address}) == [200, 429]


@pytest.mark.parametrize("header", ["x-forwarded-for", "X_Forwarded_For"])
def test_forwarded_addresses_of_untrusted_peers_are_ignored(header: str) -> None:
    client = Client(served(limits="1/minute", trusted_proxies=["10.0.0.0/8"]))

    found = [client.get("/", headers={header: f"198.51.100.{n}"}).status_code for n in range(3)]
    assert found == [200, 429, 429]


def test_a_new_id_in_the_path_is_not_a_new_counter() -> None:
    app = app_with()

    @app.get("/users/{number}")
    @limit("1/minute")
    async def one(number: int) -> int:
        return number

    assert [Client(app).get(f"/users/{n}").status_code for n in range(3)] == [200, 429, 429]


# ---- when things break ------------------------------------------------------------------------


def test_an_outage_is_not_a_500_in_the_middleware_nor_in_a_route() -> None:
    opened = served(limit("2/minute"), limiter=RequestLimiter(limits="9/minute", store=Gone()))
    closed = served(
        limit("1/minute", on_store_failure="fail_closed"), limiter=RequestLimiter(store=Gone())
    )

    assert Client(opened).statuses("/", 3) == [200, 200, 429]
    assert Client(closed).statuses("/", 2) == [503, 503]


def test_an_outage_is_counted_in_the_process_if_the_limit_says_local() -> None:
    app = served(limit("1/minute", on_store_failure="local"), limiter=RequestLimiter(store=Gone()))

    assert Client(app).statuses("/", 3) == [200, 429, 429]


@pytest.mark.parametrize("is_of_the_app", [True, False], ids=["app", "route"])
def test_an_error_of_a_key_function_is_raised_as_it_is(is_of_the_app: bool) -> None:
    def wrong(request: Any) -> str:
        raise ZeroDivisionError("mine")

    if is_of_the_app:
        app = served(limits="1/minute", key=wrong)
    else:
        app = served(limit("1/minute", key=wrong))

    with pytest.raises(ZeroDivisionError, match="mine"):
        drive(app)


def test_an_async_handler_writes_the_denials_of_routes() -> None:
    app = served(limit("1/minute"))

    @app.exception_handler(TooManyRequests)
    async def slow_down(request: Request, error: TooManyRequests) -> JSONResponse:
        return JSONResponse({"detail": "slow down"}, error.status_code, headers=error.headers)

    client = Client(app)
    assert client.get("/").json() == "fine"
    refused = client.get("/")
    assert (refused.status_code, refused.json()) == (429, {"detail": "slow down"})
    assert int(refused.headers["retry-after"]) == 60


def test_a_limit_that_is_not_one_is_an_error_at_once() -> None:
    with pytest.raises(NotationError, match="fortnight"):
        limit("5/fortnight")


# ---- what passes through ----------------------------------------------------------------------


def test_a_stream_has_one_start_and_goes_out_piece_by_piece() -> None:
    app = app_with(limits="5/minute")

    @app.get("/")
    @limit("5/minute")
    async def stream() -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

        return StreamingResponse(pieces())

    seen = drive(app, http())
    bodies = [one["body"] for one in seen.sent if one["type"] == "http.response.body"]

    assert seen.types.count("http.response.start") == 1
    assert bodies == [b"one", b"two", b""]
    assert "x-ratelimit-limit" in seen.headers


@pytest.mark.parametrize("is_of_the_app", [True, False], ids=["app", "route"])
def test_websockets_are_limited_when_they_connect(is_of_the_app: bool) -> None:
    async def endpoint(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    app = app_with(limits="1/minute") if is_of_the_app else app_with()
    app.add_api_websocket_route("/", endpoint if is_of_the_app else limit("1/minute")(endpoint))
    first, second = [websocket(app, "/")[0]["type"] for _ in range(2)]

    assert (first, second) == ("websocket.accept", "websocket.close")


def test_lifespan_events_reach_the_app() -> None:
    seen = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        seen.append("starts")
        yield
        seen.append("stops")

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(RateLimitMiddleware, limits="1/minute")
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    drive(app, scope, {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})

    assert seen == ["starts", "stops"]


def test_a_mounted_app_does_not_escape_nor_do_pages_that_are_not_there() -> None:
    inner = FastAPI()
    inner.add_api_route("/page", lambda: "inner")
    app = app_with(limits="2/minute")
    app.mount("/sub", inner)
    client = Client(app)

    assert client.statuses("/sub/page", 1) == [200]
    assert client.statuses("/nowhere", 2) == [404, 429]
    assert client.statuses("/sub/page", 1) == [429]


def test_the_event_loop_runs_while_the_store_answers() -> None:
    app = served(
        limit("9/minute"), limiter=RequestLimiter(limits="9/minute", store=Waiting(turns=50))
    )
    transport = httpx.ASGITransport(app)
    others = 0

    async def ask_while_others_run() -> int:
        nonlocal others
        async with httpx.AsyncClient(transport=transport, base_url="http://app.test") as client:
            asking = asyncio.create_task(client.get("/"))
            while not asking.done():
                others += 1
                await asyncio.sleep(0)
            return (await asking).status_code

    assert asyncio.run(ask_while_others_run()) == 200
    assert others > 200  # two questions, each of a hundred turns


# ---- what counts ------------------------------------------------------------------------------


def test_the_limit_of_the_app_holds_for_routes_with_limits_of_their_own() -> None:
    app = served(limit("100/minute"), limits="2/minute")

    assert Client(app).statuses("/", 3) == [200, 200, 429]


def test_an_exempt_route_keeps_its_own_limit_alone() -> None:
    app = served(limit("3/minute"), exempt, limits="1/minute")

    assert Client(app).statuses("/", 4) == [200, 200, 200, 429]


def test_what_the_minute_denies_does_not_use_up_the_hour() -> None:
    client = Client(served(limit("4/hour"), limit("1/minute")))

    assert client.statuses("/", 6) == [200, 429, 429, 429, 429, 429]
    shown = client.get("/").headers["ratelimit"]
    assert sorted(part.split(";")[1] for part in shown.split(", ")) == ["r=0", "r=3"]


def test_preflights_use_up_nothing_and_do_not_fail_when_it_is_used_up() -> None:
    app = app_with(limits="2/minute")
    app.add_api_route("/", lambda: "fine", methods=["GET", "OPTIONS"])
    client = Client(app)

    assert client.ask("OPTIONS", "/", headers=PREFLIGHT).status_code == 200
    assert client.statuses("/", 3) == [200, 200, 429]
    assert client.ask("OPTIONS", "/", headers=PREFLIGHT).status_code == 200


@pytest.mark.parametrize("by", ["decorator", "dependency"])
def test_head_counts_like_get(by: str) -> None:
    if by == "decorator":
        app = served(limit("2/minute", exempt_when=lambda r: r.method not in {"GET", "HEAD"}))
    else:
        app = app_with()
        limited = [Depends(RateLimit("2/minute"))]
        app.add_api_route("/", lambda: "fine", methods=["GET", "HEAD"], dependencies=limited)
    client = Client(app)

    assert [client.ask(method, "/").status_code for method in ("GET", "HEAD", "GET", "HEAD")] == [
        200,
        200,
        429,
        429,
    ]


def test_dynamic_limits_may_be_async() -> None:
    async def by_plan(request: Request) -> str:
        await asyncio.sleep(0)
        return "2/minute" if request.headers.get("x-plan") == "paid" else "1/minute"

    app = served(limit(by_plan))

    assert Client(app).statuses("/", 2) == [200, 429]
    assert Client(app, "203.0.113.8").statuses("/", 3, headers={"x-plan": "paid"}) == [
        200,
        200,
        429,
    ]


# ---- headers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["2/minute", "2/minute fixed_window", "2/minute sliding-window-log"]
)
def test_reset_is_a_whole_number_and_only_denials_have_retry_after(text: str) -> None:
    replies = [Client(app).get("/") for app in [served(limit(text))] for _ in range(3)]

    assert [reply.status_code for reply in replies] == [200, 200, 429]
    assert all(reply.headers["x-ratelimit-reset"].isdigit() for reply in replies)
    assert ["retry-after" in reply.headers for reply in replies] == [False, False, True]
    assert replies[-1].headers["retry-after"].isdigit()


def test_an_endpoint_needs_neither_a_request_nor_a_response() -> None:
    app = FastAPI()

    @app.get("/search")
    @limit("2/minute", limiter=still_limiter())
    def search(q: str) -> dict[str, str]:
        return {"found": q}

    reply = Client(app).get("/search", params={"q": "tea"})
    assert reply.json() == {"found": "tea"}
    assert reply.headers["x-ratelimit-remaining"] == "1"


def test_scripts_of_other_origins_can_read_the_headers() -> None:
    app = served(limit("1/minute"))
    app.add_middleware(CORSMiddleware, allow_origins=[ORIGIN["origin"]])
    client = Client(app)

    for status in (200, 429):
        reply = client.get("/", headers=ORIGIN)
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == ORIGIN["origin"]
        exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
        assert "x-ratelimit-remaining" in exposed
        assert ("retry-after" in exposed) is (status == 429)


# ---- during the move --------------------------------------------------------------------------


def test_a_limit_in_shadow_mode_counts_and_denies_nothing() -> None:
    would_refuse = []

    async def note(context: Any = Depends(RateLimit("1/minute", mode="shadow"))) -> None:  # noqa: B008
        would_refuse.append(bool(context.results[-1].verdict.would_deny))

    app = app_with()
    app.add_api_route("/", lambda: "fine", dependencies=[Depends(note)])
    replies = [Client(app).get("/") for _ in range(3)]

    assert [reply.status_code for reply in replies] == [200, 200, 200]
    assert would_refuse == [False, True, True]
    assert not any(name.startswith("x-ratelimit") for name in replies[0].headers)


def test_routes_that_give_the_same_name_share_a_counter() -> None:
    shared = RateLimit("2/minute", name="uploads")
    app = app_with()
    for path in ("/photos", "/films"):
        app.add_api_route(path, lambda: "fine", dependencies=[Depends(shared)])
    client = Client(app)

    assert [client.get(path).status_code for path in ("/photos", "/films", "/photos")] == [
        200,
        200,
        429,
    ]
