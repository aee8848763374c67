"""A gate of one's own before an app, on virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headgate.errors import OptionError
from headgate.integrations.asgi import FairMiddleware
from headgate.overload import AsyncFairGate
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.slow_apps import App, Client


def gate(**options: Any) -> AsyncFairGate:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return AsyncFairGate(clock=loop.time_ns, name="backend", **options)


def by_header(name: str) -> Any:
    return lambda request: request.header(name)


def test_requests_take_turns_by_what_a_function_says() -> None:
    app = App(1)

    async def main() -> list[Any]:
        fair = FairMiddleware(app, gate(slots=1), tenant=by_header("x-tenant"))
        client = Client(fair)
        asked = [client.ask(f"/a{n}", x_tenant="a") for n in range(3)]
        asked += [client.ask("/b0", x_tenant="b")]
        return await asyncio.gather(*asked)

    answers = run_virtually(main())
    assert [status for status, _, _ in answers] == [200] * 4
    paths = [path for _, path in app.log]
    assert paths.index("/b0") < paths.index("/a2")  # though it came after it
    assert answers[2][1]["headgate-delay"] == "3.0"
    assert "slots=1" in answers[0][1]["headgate-queue"]


def test_functions_may_be_async_and_say_cost_weight_and_class() -> None:
    app = App(0)

    async def tenant(request: Any) -> str:
        await asyncio.sleep(0)
        return str(request.header("x-tenant"))

    async def main() -> list[Any]:
        fair = FairMiddleware(
            app,
            gate(rate="10/s"),
            tenant=tenant,
            cost=lambda request: int(request.header("x-cost") or 1),
            priority=lambda _: "critical",
            weight=lambda _: 2,
        )
        client = Client(fair)
        asked = [client.ask("/1", x_tenant="a", x_cost="5"), client.ask("/2")]
        return await asyncio.gather(*asked)

    assert [status for status, _, _ in run_virtually(main())] == [200, 200]
    assert [round(began, 6) for began, _ in app.log] == [0, 0.5]


def test_those_of_whom_a_function_says_nothing_take_turns_by_their_addresses() -> None:
    app = App(1)

    async def main() -> list[Any]:
        one = gate(slots=1, queue=2)
        client = Client(FairMiddleware(app, one, tenant=by_header("x-tenant")))
        asked = [client.ask(f"/a{n}", address="1.1.1.1") for n in range(4)]
        asked += [client.ask("/b0", address="2.2.2.2", x_tenant="")]
        return await asyncio.gather(*asked)

    assert [status for status, _, _ in run_virtually(main())] == [200, 200, 200, 503, 200]
    paths = [path for _, path in app.log]
    assert paths.index("/b0") < paths.index("/a2")  # though it came after it


@pytest.mark.parametrize(
    ("said", "wait"), [({"weight": 4}, 0.1), ({"priority": lambda _: "critical"}, 0.1), ({}, 1.0)]
)
def test_the_wait_that_is_told_goes_by_weight_and_class(said: Any, wait: float) -> None:
    async def main() -> tuple[Any, ...]:
        one = gate(rate="10/s")
        waiting = [asyncio.ensure_future(one.enter(f"t{n}")) for n in range(10)]
        await asyncio.sleep(0)
        answer = await Client(FairMiddleware(App(0), one, timeout=0, **said)).ask("/")
        await asyncio.gather(*waiting)
        return answer

    status, shown, _ = run_virtually(main())
    assert status == 503
    assert shown["headgate-queue"] == f'"backend";waiting=9;wait={wait};in-flight=1'


def test_who_cannot_be_served_is_told_so_with_a_503() -> None:
    app = App(1)

    async def main() -> list[Any]:
        client = Client(FairMiddleware(app, gate(slots=1, queue=1)))
        return await asyncio.gather(*(client.ask("/") for _ in range(3)))

    answers = run_virtually(main())
    assert [status for status, _, _ in answers] == [200, 200, 503]
    assert json.loads(answers[2][2])["limit"] == "backend"
    assert "waiting=1" in answers[2][1]["headgate-queue"]


def test_browsers_of_other_origins_may_read_how_the_gate_stands() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1)
        headers = [(b"access-control-expose-headers", b"x-own")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def main() -> list[Any]:
        client = Client(FairMiddleware(app, gate(slots=1, queue=0)))
        return await asyncio.gather(*(client.ask("/", origin="https://a.example") for _ in "12"))

    answers = run_virtually(main())
    exposed = {status: shown["access-control-expose-headers"] for status, shown, _ in answers}
    assert exposed == {200: "x-own, Headgate-Queue", 503: "Headgate-Queue, Retry-After"}


def test_a_preflight_takes_no_turn() -> None:
    async def main() -> list[int]:
        one = gate(slots=1, queue=0)
        client = Client(FairMiddleware(App(0), one))
        with await one.enter("a"):
            origin = "https://a.example"
            preflight = await client.ask(
                "/", method="OPTIONS", origin=origin, access_control_request_method="POST"
            )
            other = await client.ask("/", method="OPTIONS")
        return [preflight[0], other[0]]

    assert run_virtually(main()) == [200, 503]


def test_a_turn_is_over_with_the_response_whatever_became_of_it() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("no")

    async def main() -> tuple[int, int]:
        one = gate(slots=1)
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await Client(FairMiddleware(failing, one)).ask("/")
        status, _, _ = await Client(FairMiddleware(App(0), one)).ask("/")
        return status, one.in_flight

    assert run_virtually(main()) == (200, 0)


def test_whoever_leaves_lets_the_next_go() -> None:
    app = App(10)

    async def main() -> list[Any]:
        client = Client(FairMiddleware(app, gate(slots=1)))
        leaving = client.ask("/2", leaves_after=1)
        return await asyncio.gather(*[client.ask("/1"), leaving, client.ask("/3")])

    assert [status for status, _, _ in run_virtually(main())] == [200, 0, 200]
    assert app.log == [(0, "/1"), (10, "/3")]


def test_what_is_not_http_passes() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def main() -> None:
        fair = FairMiddleware(app, gate(slots=1))
        for kind in ("lifespan", "websocket"):
            await fair({"type": kind}, None, None)  # type: ignore[arg-type]

    run_virtually(main())
    assert seen == ["lifespan", "websocket"]


def test_a_gate_that_blocks_is_refused() -> None:
    with pytest.raises(OptionError, match="expected an AsyncFairGate"):
        FairMiddleware(App(0), "gate")  # type: ignore[arg-type]
