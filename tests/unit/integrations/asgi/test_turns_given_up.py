"""FairQueues through the middleware: never lost, and not counted where the app never ran."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.engine.plan import Queueing
from headgate.engine.request import Request
from headgate.errors import UsageError
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.disconnects import DisconnectListener
from headgate.integrations.request_context import RequestContext
from headgate.overload import AsyncFairGate
from headgate.policy.loader import read_policy
from headgate.policy.model import compiled_rule
from headgate.runtime.drivers import adrive
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.slow_apps import App, Client

ONE = "{id: one, key_by: tenant, fair: {slots: 1, queue: 5, max_wait: 60s}}"
ADAPTIVE = "{id: moved, key_by: tenant, fair: {slots: {adaptive: aimd, min: 2, max: 9}}}"
NARROW = "{id: narrow, key_by: tenant, fair: {slots: 1, queue: 0}}"


def limited(app: App, *rules: str) -> tuple[RateLimitMiddleware, Client]:
    """To be called in the loop whose time everything goes by."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    policy = read_policy(f"version: 1\nrules: [{', '.join(rules)}]")
    middleware = RateLimitMiddleware(app, policy=policy, clock=loop.time_ns)
    return middleware, Client(middleware)


def gates_of(middleware: RateLimitMiddleware) -> dict[str, AsyncFairGate]:
    gates = middleware.limiter.queues.gates()
    return {gate.name: gate for gate in gates if isinstance(gate, AsyncFairGate)}


@pytest.mark.parametrize("step", range(14))
def test_whenever_a_request_is_cancelled_its_turn_goes_to_the_next(step: int) -> None:
    async def main() -> list[str]:
        app = App(1)
        middleware, client = limited(app, ONE)
        first = asyncio.ensure_future(client.ask("/1", x_tenant_id="a"))
        await asyncio.sleep(0.5)
        second = asyncio.ensure_future(client.ask("/2", x_tenant_id="a"))
        third = asyncio.ensure_future(client.ask("/3", x_tenant_id="a"))
        await asyncio.sleep(0.5)
        for _ in range(step):  # while the first leaves, and the second is let in
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        gate = gates_of(middleware)["one"]
        assert (gate.in_flight, gate.depth) == (0, 0)
        assert len(asyncio.all_tasks()) == 1
        return [path for _, path in app.log]

    assert run_virtually(main()) in (["/1", "/3"], ["/1", "/2", "/3"])


def test_what_came_in_the_instant_of_a_cancellation_is_not_lost() -> None:
    """Its holder gives it up, as no other part of the app could."""
    given_up: list[str] = []

    async def main() -> None:
        turn: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def wait() -> str:
            try:
                return await turn
            except asyncio.CancelledError:
                given_up.append("turn")
                raise

        async def receive() -> Any:
            await asyncio.sleep(1_000)

        task = asyncio.ensure_future(DisconnectListener(receive).meanwhile(wait()))
        await asyncio.sleep(1)
        turn.set_result("mine")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtually(main())
    assert given_up == ["turn"]


def test_one_that_is_cancelled_as_its_client_goes_is_cancelled() -> None:
    async def main() -> int:
        async def receive() -> Any:
            await asyncio.sleep(1)
            return {"type": "http.disconnect"}

        task = asyncio.ensure_future(DisconnectListener(receive).meanwhile(asyncio.sleep(5)))
        asyncio.get_running_loop().call_later(1, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelling()

    assert run_virtually(main()) <= 1


def test_a_client_that_cannot_be_heard_waits_on() -> None:
    async def main() -> str:
        async def receive() -> Any:
            raise OSError("no")

        return await DisconnectListener(receive).meanwhile(asyncio.sleep(5, "done"))

    assert run_virtually(main()) == "done"


def test_one_refused_at_the_second_gate_is_not_observed_at_the_first() -> None:
    async def main() -> tuple[list[int], int]:
        app = App(1)
        middleware, client = limited(app, ADAPTIVE, NARROW)
        seen: list[int] = []
        await client.ask(x_tenant_id="a")
        gate = gates_of(middleware)["moved"]
        steering = gate._settings.slots
        observe = steering.observe  # type: ignore[union-attr]  # it is no number

        class Watching:
            limit = 5

            def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
                seen.append(latency_ns)
                observe(in_flight=in_flight, latency_ns=latency_ns, succeeded=succeeded)

        gate.configure(slots=Watching())
        answers = await asyncio.gather(*(client.ask(x_tenant_id="a") for _ in range(3)))
        assert sorted(status for status, _, _ in answers) == [200, 503, 503]
        return seen, gate.in_flight

    assert run_virtually(main()) == ([1_000_000_000], 0)


def test_two_gates_are_taken_in_the_order_of_the_policy() -> None:
    """So two requests never hold what the other waits for."""

    async def main() -> list[int]:
        first = "{id: b, key_by: tenant, fair: {slots: 1, queue: 9, max_wait: 60s}}"
        second = "{id: a, key_by: global, fair: {slots: 1, queue: 9, max_wait: 60s}}"
        middleware, client = limited(App(1), first, second)
        asked = [client.ask(f"/{n}", x_tenant_id="xy"[n % 2]) for n in range(6)]
        answers = await asyncio.gather(*asked)
        assert list(gates_of(middleware)) == ["b", "a"]
        assert asyncio.get_running_loop().time() == 6
        return [status for status, _, _ in answers]

    assert run_virtually(main()) == [200] * 6


def test_an_app_with_turns_works_in_one_loop_after_another() -> None:
    """As test clients have it: a loop for each request, or several side by side."""
    policy = read_policy(f"version: 1\nrules: [{ONE}]")
    client = Client(RateLimitMiddleware(App(0), policy=policy))
    with asyncio.Runner() as first, asyncio.Runner() as second:
        for runner in (first, second, first, second):
            assert runner.run(client.ask(x_tenant_id="a"))[0] == 200
    assert asyncio.run(client.ask(x_tenant_id="a"))[0] == 200


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("fair", ["slots: 2", "rate: 1/s"])
def test_the_headers_name_the_load_of_each_queue(others: int, fair: str) -> None:
    async def main() -> str:
        both = [f"{{id: {name}, key_by: tenant, fair: {{{fair}, max_wait: 9s}}}}" for name in "xy"]
        limit = "{id: limit, key_by: tenant, limit: 9/s}"
        middleware, client = limited(App(2), limit, *both)
        limiter = middleware.limiter
        held = [asyncio.ensure_future(client.ask(x_tenant_id="a")) for _ in range(others)]
        await asyncio.sleep(0.1)
        request = Request(headers=(("x-tenant-id", "b"),))
        context = RequestContext(limiter, request)
        assert await adrive(context.begin(limiter, limiter.plan(request)))
        headers = dict(context.with_headers([], 200))
        for turn in context.places:
            turn.release()
        await asyncio.gather(*held)
        return headers["Headgate-Queue"]

    load = run_virtually(main())
    assert load.startswith('"x";waiting=')
    assert ', "y";waiting=' in load


def test_a_gate_that_is_in_use_in_another_loop_costs_nothing_else() -> None:
    fair = "{id: one, key_by: tenant, fair: {slots: 1}}"
    slots = "{id: slots, key_by: tenant, concurrency: {limit: 1, ttl: 1h}}"
    limit = "{id: limit, key_by: tenant, limit: 2/h}"
    policy = read_policy(f"version: 1\nrules: [{fair}, {slots}, {limit}]")
    middleware = RateLimitMiddleware(App(0), policy=policy)
    other = asyncio.new_event_loop()
    turns, rule = middleware.limiter.queues, policy.rules[0]
    queueing = Queueing(compiled_rule(rule), "t", 1, 1, "default")
    [held], _ = other.run_until_complete(adrive(turns.entering(AsyncFairGate, 0, [queueing])))
    for _ in range(3):
        with pytest.raises(UsageError, match="in use in another event loop"):
            asyncio.run(Client(middleware).ask("/"))
    held.release()
    other.close()
    status, shown, _ = asyncio.run(Client(middleware).ask("/"))
    assert (status, shown["x-ratelimit-remaining"]) == (200, "0")
