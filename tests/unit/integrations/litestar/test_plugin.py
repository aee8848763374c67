"""Limits in a Litestar app: the plugin, guards, and what they answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from litestar import Controller, Litestar, Request, Response, WebSocket, get, post, websocket
from litestar.exceptions import NotAuthorizedException, WebSocketDisconnect
from litestar.response import Stream
from litestar.testing import TestClient

from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.litestar import RateLimitPlugin, TooManyRequests, exempt, limit, report
from headgate.limits import Concurrency
from headgate.policy.loader import read_policy
from headgate.stores import Store
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.integrations import CompletedResponse


class DownStore(Store):
    """A store that fails."""

    def run(self, operation: object) -> Any:
        raise StoreError("it is down")

    def close(self) -> None:
        pass


@get("/")
async def index() -> str:
    return "hello"


def made(*handlers: Any, exception_handlers: Any = None, **options: Any) -> Litestar:
    if "store" not in options:
        options["clock"] = ManualClock()
    return Litestar(
        [index, *handlers],
        plugins=[RateLimitPlugin(**options)],
        exception_handlers=exception_handlers,
        openapi_config=None,
        logging_config=None,
    )


def codes(app: Litestar, *paths: str, **options: Any) -> list[int]:
    """The status of a GET of each of *paths*."""
    with TestClient(app) as client:
        return [client.get(path, **options).status_code for path in paths]


def test_allowed_requests_tell_what_is_left_and_denied_ones_when_to_retry() -> None:
    with TestClient(made(limits="1/minute")) as client:
        first = client.get("/")
        assert first.text == "hello"
        assert first.headers["RateLimit-Policy"] == '"default";q=1;w=60'
        denied = client.get("/")
        assert denied.status_code == 429
        assert denied.headers["Retry-After"] == "60"
        assert denied.json()["retry_after"] == 60


def test_a_guard_denies_with_the_same_response() -> None:
    @get("/login", guards=[limit("1/minute")])
    async def login() -> str:
        return "welcome"

    with TestClient(made(login)) as client:
        assert client.get("/login").headers["RateLimit-Policy"] == '"login";q=1;w=60'
        denied = client.get("/login")
        assert denied.status_code == 429
        assert denied.headers.get_list("Retry-After") == ["60"]
        assert denied.headers.get_list("RateLimit") == ['"login";r=0;t=60']
        assert denied.headers["Content-Type"] == "application/json"
        assert denied.json()["retry_after"] == 60


def test_a_request_that_a_guard_denies_consumes_nothing() -> None:
    @get("/search", guards=[limit("2/minute", key=lambda _: "all"), limit("1/minute")])
    async def search() -> str:
        return "found"

    app = made(search, limits="3/minute")
    assert codes(app, "/search", "/search", "/", "/", "/") == [200, 429, 200, 200, 429]


def test_a_guard_of_a_controller_counts_each_route_unless_it_has_a_name() -> None:
    class Items(Controller):
        path = "/items"
        guards = [limit("1/minute")]  # noqa: RUF012

        @get("/{number:int}")
        async def one(self, request: Request[Any, Any, Any]) -> str:
            return str(request.path_params["number"])

        @get("/all")
        async def every(self) -> str:
            return "all"

    class Shared(Items):
        path = "/shared"
        guards = [limit("1/minute", name="shared")]  # noqa: RUF012

    app = made(Items, Shared)
    assert codes(app, "/items/1", "/items/2", "/items/all") == [200, 429, 200]
    assert codes(app, "/shared/1", "/shared/all") == [200, 429]


def test_keys_costs_and_exemptions_are_functions() -> None:
    async def key(request: Request[Any, Any, Any]) -> str | None:
        return request.headers.get("x-user")

    guard = limit(
        "10/minute",
        key=key,
        cost=lambda request: int(request.query_params["cost"]),
        exempt_when=lambda request: "staff" in request.query_params,
    )

    @get("/work", guards=[guard])
    async def work() -> str:
        return "done"

    paths = ["/work?cost=7", "/work?cost=4", "/work?cost=3", "/work?cost=9&staff=1"]
    assert codes(made(work), *paths, headers={"x-user": "ann"}) == [200, 429, 200, 200]


def test_exempt_paths_and_handlers_are_not_limited() -> None:
    @get("/health")
    @exempt
    async def health() -> str:
        return "well"

    @get("/blocking", sync_to_thread=True)
    @exempt
    def blocking() -> str:
        return "well"

    @get("/static/a")
    async def static() -> str:
        return "a"

    app = made(health, blocking, static, limits="1/minute", exempt=["/static/**"])
    paths = ["/health"] * 2 + ["/blocking"] * 2 + ["/static/a"] * 2 + ["/"] * 2
    assert codes(app, *paths) == [200] * 7 + [429]


def test_rules_know_the_template_of_the_route() -> None:
    @get("/items/{number:int}")
    async def items(request: Request[Any, Any, Any]) -> str:
        return str(request.path_params["number"])

    policy = read_policy("{version: 1, rules: [{id: a, key_by: [ip, endpoint], limit: 1/m}]}")
    assert codes(made(items, policy=policy), "/items/1", "/items/2", "/") == [200, 429, 200]


@pytest.mark.parametrize(("mode", "code"), [("fail_open", 200), ("fail_closed", 503)])
def test_an_outage_of_the_store_opens_or_closes(mode: Any, code: int) -> None:
    @get("/login", guards=[limit("2/minute", on_store_failure=mode)])
    async def login() -> str:
        return "welcome"

    app = made(login, limits="2/minute", store=DownStore(), on_store_failure=mode)
    assert codes(app, "/", "/login") == [code] * 2


def test_charge_when_sees_errors_that_the_app_answers() -> None:
    def is_wrong(response: CompletedResponse) -> bool:
        return response.status_code == 401

    @get("/login", guards=[limit("1/minute", charge_when=is_wrong)])
    async def login(request: Request[Any, Any, Any]) -> str:
        if "wrong" in request.query_params:
            raise NotAuthorizedException
        return "welcome"

    right, wrong = "/login", "/login?wrong=1"
    with TestClient(made(login)) as client:
        answers = [client.get(path) for path in (right, right, wrong, right)]
    assert [one.status_code for one in answers] == [200, 200, 401, 429]
    assert all("RateLimit" in one.headers for one in answers)


def test_a_stream_reports_its_real_cost() -> None:
    @get("/words", guards=[limit("10/minute", cost=8, is_estimate=True, name="words")])
    async def words(request: Request[Any, Any, Any]) -> Stream:
        async def sent() -> AsyncIterator[str]:
            for number in (1, 2):
                report(request, words=number)
                yield f"word {number}\n"

        return Stream(sent())

    assert codes(made(words), "/words", "/words", "/words") == [200, 200, 429]  # 2 + 2 + 8


def test_a_slot_is_released_when_the_client_goes_away() -> None:
    entered = asyncio.Event()

    @get("/wait", guards=[limit(Concurrency(1, 60), name="slots")])
    async def wait(request: Request[Any, Any, Any]) -> str:
        if "now" not in request.query_params:
            entered.set()
            await asyncio.Event().wait()
        return "done"

    app = made(wait)

    async def status_of(query: bytes) -> int:
        statuses: list[int] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope: Any = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http"}
        scope |= {"path": "/wait", "raw_path": b"/wait", "query_string": query, "root_path": ""}
        scope |= {"headers": [], "client": ("192.0.2.7", 5000), "server": ("test", 80), "state": {}}
        await app(scope, receive, send)
        return statuses[0]

    async def main() -> None:
        waiting = asyncio.create_task(status_of(b""))
        await entered.wait()
        assert await status_of(b"now=1") == 429
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await status_of(b"now=1") == 200

    asyncio.run(main())


def test_websockets_are_denied_before_they_are_accepted() -> None:
    @websocket("/socket", guards=[limit(Concurrency(1, 60))])
    async def echo(socket: WebSocket[Any, Any, Any]) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.close()

    with TestClient(made(echo)) as client:
        for _ in range(2):
            with client.websocket_connect("/socket") as first:
                with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket"):
                    pass
                first.send_text("hi")
                assert first.receive_text() == "hi"


def test_an_app_may_answer_a_denial_itself() -> None:
    def slow_down(_request: Request[Any, Any, Any], _error: TooManyRequests) -> Response[str]:
        return Response("slow down", status_code=429, media_type="text/plain")

    @post("/login", guards=[limit("1/minute")], status_code=200)
    async def login() -> str:
        return "welcome"

    with TestClient(made(login, exception_handlers={TooManyRequests: slow_down})) as client:
        client.post("/login")
        denied = client.post("/login")
        assert (denied.status_code, denied.text) == (429, "slow down")
        assert denied.headers["Retry-After"] == "60"


def test_a_limiter_of_the_plugin_is_closed_with_the_app() -> None:
    plugin = RateLimitPlugin(limits="1/minute")
    app = Litestar([index], plugins=[plugin], openapi_config=None, logging_config=None)
    before = plugin.limiter.engine
    with TestClient(app):
        assert plugin.limiter.engine is before
    assert plugin.limiter.engine is not before


def test_mistakes_are_reported_when_the_limit_is_declared() -> None:
    with pytest.raises(OptionError, match="use RequestLimiter"):
        RateLimitPlugin(RequestLimiter(), limits="1/minute")
    with pytest.raises(OptionError, match="key cannot be called with the request"):
        limit("1/minute", key=lambda: "ann")
    with pytest.raises(UsageError, match="write @exempt below @get"):
        exempt(index)


def test_a_guard_needs_the_plugin() -> None:
    @get("/login", guards=[limit("1/minute")])
    async def login() -> str:
        return "welcome"

    app = Litestar([login], openapi_config=None, logging_config=None)
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/login").status_code == 500
