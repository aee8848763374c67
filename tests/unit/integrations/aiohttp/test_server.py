"""Limits in an aiohttp server, asked by aiohttp's test client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import WSServerHandshakeError, web
from aiohttp.test_utils import TestClient, TestServer

from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.aiohttp_server import exempt, limit, report, setup, status
from headgate.limits import Concurrency
from headgate.policy.loader import read_policy
from headgate.stores import Store
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.integrations import CompletedResponse

    Client = TestClient[web.Request, web.Application]


class DownStore(Store):
    """A store that fails."""

    def run(self, operation: object) -> Any:
        raise StoreError("it is down")

    def close(self) -> None:
        pass


async def hello(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


def made(handler: Any = hello, path: str = "/", **options: Any) -> web.Application:
    """An app with one handler, for all methods."""
    app = web.Application()
    if "store" not in options:
        options["clock"] = ManualClock()
    setup(app, **options)
    app.router.add_route("*", path, handler)
    return app


def serving(app: web.Application, main: Callable[[Client], Awaitable[None]]) -> None:
    """Run *main* with a client of *app*."""

    async def run() -> None:
        async with TestClient(TestServer(app)) as client:
            await main(client)

    asyncio.run(run())


def codes(app: web.Application, *paths: str, **options: Any) -> list[int]:
    """The status of a GET of each of *paths*."""
    found: list[int] = []

    async def main(client: Client) -> None:
        found.extend([(await client.get(path, **options)).status for path in paths])

    serving(app, main)
    return found


def test_allowed_requests_tell_what_is_left_and_denied_ones_when_to_retry() -> None:
    async def main(client: Client) -> None:
        first = await client.get("/")
        assert await first.text() == "hello"
        assert first.headers["RateLimit-Policy"] == '"default";q=1;w=60'
        assert first.headers["X-RateLimit-Remaining"] == "0"
        denied = await client.get("/")
        assert denied.status == 429
        assert denied.headers["Retry-After"] == "60"
        assert denied.headers.getall("X-RateLimit-Remaining") == ["0"]
        assert denied.headers.getall("Content-Type") == ["application/json"]
        assert (await denied.json())["retry_after"] == 60
        head = await client.head("/")
        assert head.status == 429
        assert await head.read() == b""

    serving(made(limits="1/minute"), main)


def test_headers_are_on_every_response() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        kind = request.query["kind"]
        if kind == "error":
            raise ValueError("broken")
        if kind == "found":
            raise web.HTTPFound("/elsewhere")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a stream")
        return response

    async def main(client: Client) -> None:
        for kind, code in (("error", 500), ("found", 302), ("stream", 200)):
            response = await client.get(f"/?kind={kind}", allow_redirects=False)
            assert response.status == code
            assert "RateLimit" in response.headers
        missing = await client.get("/missing")
        assert missing.status == 404
        assert missing.headers["X-RateLimit-Remaining"] == "5"
        shown = await client.get("/?kind=stream", headers={"Origin": "https://shop.example"})
        assert "RateLimit" in shown.headers["Access-Control-Expose-Headers"]

    serving(made(handler, limits="9/minute"), main)


def test_a_handler_has_limits_of_its_own() -> None:
    @limit("1/minute")
    async def login(_request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    app = made(limits="3/minute")
    app.router.add_get("/login/{name}", login)
    # the denied login consumed nothing of the limit of the app
    assert codes(app, "/login/a", "/login/b", "/", "/", "/") == [200, 429, 200, 200, 429]


def test_stacked_limits_are_one_check() -> None:
    @limit("2/minute", name="all", key=lambda _: "all")
    @limit("1/minute", key=lambda request: request.query["user"])
    async def search(_request: web.Request) -> web.Response:
        return web.Response()

    paths = [f"/?user={user}" for user in ("ann", "ann", "bob", "eve")]
    assert codes(made(search), *paths) == [200, 429, 200, 429]


def test_methods_of_a_view_are_limited() -> None:
    class Items(web.View):
        @limit("1/minute")
        async def get(self) -> web.Response:
            return web.Response()

        async def post(self) -> web.Response:
            return web.Response()

    async def main(client: Client) -> None:
        assert [(await client.get("/")).status for _ in range(2)] == [200, 429]
        assert (await client.post("/")).status == 200

    serving(made(Items), main)


def test_keys_costs_and_exemptions_are_functions() -> None:
    async def key(request: web.Request) -> str | None:
        return request.headers.get("x-user")

    @limit(
        "10/minute",
        key=key,
        cost=lambda request: int(request.query["cost"]),
        exempt_when=lambda request: "staff" in request.query,
    )
    async def work(_request: web.Request) -> web.Response:
        return web.Response()

    app = made(work)
    paths = ["/?cost=7", "/?cost=4", "/?cost=3", "/?cost=9&staff=1"]
    assert codes(app, *paths, headers={"x-user": "ann"}) == [200, 429, 200, 200]


def test_exempt_paths_and_handlers_are_not_limited() -> None:
    @exempt
    async def health(_request: web.Request) -> web.Response:
        return web.Response()

    app = made(limits="1/minute", exempt=["/static/**"])
    app.router.add_get("/health", health)
    app.router.add_get("/static/a.css", hello)
    app.router.add_get("/rate_limit", status)
    paths = ["/health"] * 2 + ["/static/a.css"] * 2 + ["/rate_limit"] * 2 + ["/"] * 2
    assert codes(app, *paths) == [200] * 7 + [429]


def test_an_app_in_an_app_does_not_escape_and_may_have_limits_of_its_own() -> None:
    inner = made(limits="1/minute", name="inner")
    app = made(limits="2/minute")
    app.add_subapp("/inner", inner)
    assert codes(app, "/inner/", "/inner/", "/", "/") == [200, 429, 200, 429]


def test_rules_know_the_template_of_the_route() -> None:
    policy = read_policy("{version: 1, rules: [{id: items, key_by: [ip, endpoint], limit: 1/m}]}")
    app = made(hello, "/items/{id}", policy=policy)
    app.router.add_get("/other/{id}", hello)
    assert codes(app, "/items/1", "/items/2", "/other/1") == [200, 429, 200]


@pytest.mark.parametrize(("mode", "code"), [("fail_open", 200), ("fail_closed", 503)])
def test_an_outage_of_the_store_opens_or_closes(mode: Any, code: int) -> None:
    app = made(limits="2/minute", store=DownStore(), on_store_failure=mode)
    assert codes(app, "/", "/") == [code] * 2


def test_charge_when_and_report_settle_the_cost() -> None:
    def is_wrong(response: CompletedResponse) -> bool:
        return response.status_code == 401

    @limit("1/minute", charge_when=is_wrong)
    async def login(request: web.Request) -> web.Response:
        return web.Response(status=401 if "wrong" in request.query else 200)

    @limit("10/minute", cost=8, is_estimate=True, name="tokens")
    async def tokens(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        report(request, tokens=2)
        return response

    app = made(login)
    app.router.add_get("/tokens", tokens)
    assert codes(app, "/", "/", "/?wrong=1", "/") == [200, 200, 401, 429]
    app = made(login)
    app.router.add_get("/tokens", tokens)
    assert codes(app, "/tokens", "/tokens", "/tokens") == [200, 200, 429]  # 2 + 2 + 8 do not fit


@pytest.mark.parametrize("end", ["stream", "error", "body"])
def test_a_slot_is_held_until_the_response_is_over(end: str) -> None:
    async def main(client: Client) -> None:
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def handler(request: web.Request) -> web.StreamResponse:
            if "wait" not in request.query:
                return web.Response()
            if end == "body":
                return web.Response(body=body())
            entered.set()
            await go_on.wait()
            if end == "error":
                raise ValueError("broken")
            response = web.StreamResponse()
            await response.prepare(request)
            return response

        async def body() -> Any:
            entered.set()
            await go_on.wait()
            yield b"the end"

        holder["handler"] = handler
        first = asyncio.create_task(client.get("/?wait=1"))
        await entered.wait()
        assert (await client.get("/")).status == 429
        go_on.set()
        assert (await (await first).read()) is not None
        while (await client.get("/")).status != 200:
            pass

    holder: dict[str, Any] = {}

    async def dispatch(request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = await holder["handler"](request)
        return response

    serving(made(dispatch, limits=Concurrency(1, 60)), main)


def test_a_websocket_is_checked_when_it_connects_and_holds_its_slot() -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async def main(client: Client) -> None:
        async with client.ws_connect("/") as socket:
            assert "RateLimit-Policy" in socket._response.headers
            await socket.send_str("hi")
            assert await socket.receive_str() == "hi"
            with pytest.raises(WSServerHandshakeError) as denied:
                await client.ws_connect("/")
            assert denied.value.status == 429
        async with client.ws_connect("/") as socket:
            await socket.send_str("again")
            assert await socket.receive_str() == "again"

    serving(made(echo, limits=Concurrency(1, 60)), main)


def test_an_app_may_answer_a_denial_itself() -> None:
    @web.middleware
    async def own(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            found: web.StreamResponse = await handler(request)
        except web.HTTPTooManyRequests:
            return web.Response(text="slow down", status=429)
        return found

    async def main(client: Client) -> None:
        await client.get("/")
        denied = await client.get("/")
        assert await denied.text() == "slow down"
        assert denied.headers["Retry-After"] == "60"

    app = made(limit("1/minute")(hello))
    app.middlewares.append(own)
    serving(app, main)


def test_mistakes_are_reported_when_the_limit_is_declared() -> None:
    app = made(limits="1/minute")
    with pytest.raises(UsageError, match="setup\\(\\) was called twice"):
        setup(app, limits="1/minute")
    with pytest.raises(UsageError, match=r"expected an aiohttp\.web\.Application"):
        setup(None, limits="1/minute")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="use RequestLimiter"):
        setup(web.Application(), RequestLimiter(), limits="1/minute")
    with pytest.raises(UsageError, match="above an async function"):
        limit("1/minute")(lambda _request: None)
    with pytest.raises(OptionError, match="key cannot be called with the request"):
        limit("1/minute", key=lambda: "ann")
    with pytest.raises(UsageError, match="write @exempt above a function"):
        exempt("/health")


def test_a_limited_handler_needs_setup() -> None:
    app = web.Application()
    app.router.add_get("/", limit("1/minute")(hello))
    assert codes(app, "/") == [500]
