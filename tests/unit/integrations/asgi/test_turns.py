"""Requests that are delayed, take turns or are shed, through the middleware, on virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.slow_apps import App, Client

if TYPE_CHECKING:
    from collections.abc import Mapping


def limited(app: Any, rules: str) -> Client:
    """To be called in the loop whose time everything goes by."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    policy = read_policy(f"version: 1\n{rules}")
    return Client(RateLimitMiddleware(app, policy=policy, clock=loop.time_ns))


SHAPE = """
rules:
  - id: exports
    key_by: global
    shape: {rate: 10/s, queue: 3}
"""

TURNS = """
rules:
  - id: turns
    key_by: tenant
    fair: {slots: 1, weights: {paid: 2, default: 1}, queue: 2, max_wait: 60s}
"""

ADAPTIVE = """
rules:
  - id: turns
    key_by: tenant
    fair: {slots: {adaptive: aimd, min: 1, max: 20, target: 1s}}
"""

SHED = """
priority:
  - {class: critical, match: {endpoint: /pay}}
  - {class: sheddable, match: {endpoint: /report}}
rules:
  - id: backend
    key_by: global
    concurrency: {limit: 4, ttl: 60s, reserve: {critical: 25%, default: 25%}}
"""


def test_a_shaped_request_is_delayed_and_said_to_be() -> None:
    app = App(0)

    async def main() -> list[tuple[int, Mapping[str, str], bytes]]:
        client = limited(app, SHAPE)
        return await asyncio.gather(*(client.ask(f"/{n}") for n in range(5)))

    answers = run_virtually(main())
    assert [status for status, _, _ in answers] == [200, 200, 200, 200, 429]
    starts = [began for began, _ in app.log]
    assert [round(began, 6) for began in starts] == [0.0, 0.1, 0.2, 0.3]
    assert [path for _, path in app.log] == ["/0", "/1", "/2", "/3"]
    assert [shown.get("headgate-delay") for _, shown, _ in answers[:4]] == [
        None,
        "0.1",
        "0.2",
        "0.3",
    ]
    assert '"exports";waiting=' in answers[3][1]["headgate-queue"]
    assert json.loads(answers[4][2])["limit"] == "exports"


def test_a_client_that_leaves_the_queue_makes_room() -> None:
    app = App(0)

    async def main() -> list[Any]:
        client = limited(app, SHAPE)
        asked = [client.ask("/0"), client.ask("/1"), client.ask("/2", leaves_after=0.05)]
        tasks = [asyncio.ensure_future(one) for one in asked]
        await asyncio.sleep(0.06)
        tasks.append(asyncio.ensure_future(client.ask("/3")))
        return await asyncio.gather(*tasks)

    answers = run_virtually(main())
    assert [status for status, _, _ in answers] == [200, 200, 0, 200]
    assert [(round(began, 6), path) for began, path in app.log] == [
        (0.0, "/0"),
        (0.1, "/1"),
        (0.2, "/3"),
    ]


def test_tenants_take_turns_by_weight_and_a_full_queue_sheds() -> None:
    app = App(1)

    async def main() -> list[Any]:
        client = limited(app, TURNS)
        asked = [client.ask("/a1", x_tenant_id="a", x_tier="paid")]
        asked += [client.ask(f"/a{n}", x_tenant_id="a", x_tier="paid") for n in (2, 3, 4)]
        asked += [client.ask(f"/b{n}", x_tenant_id="b") for n in (1, 2)]
        return await asyncio.gather(*asked)

    answers = run_virtually(main())
    assert [status for status, _, _ in answers] == [200, 200, 200, 503, 200, 200]
    assert sorted(path for _, path in app.log) == ["/a1", "/a2", "/a3", "/b1", "/b2"]
    assert [began for began, _ in app.log] == [0, 1, 2, 3, 4]
    refused = answers[3]
    assert refused[1]["retry-after"]
    assert json.loads(refused[2])["limit"] == "turns"
    assert "slots=1" in refused[1]["headgate-queue"]
    assert answers[1][1]["headgate-delay"]


def test_one_who_leaves_while_waiting_for_its_turn_lets_the_next_go() -> None:
    app = App(10)

    async def main() -> list[Any]:
        client = limited(app, TURNS)
        asked = [
            client.ask("/1", x_tenant_id="a"),
            client.ask("/2", x_tenant_id="a", leaves_after=1),
            client.ask("/3", x_tenant_id="a"),
        ]
        return await asyncio.gather(*asked)

    assert [status for status, _, _ in run_virtually(main())] == [200, 0, 200]
    assert app.log == [(0, "/1"), (10, "/3")]


def test_what_matters_less_is_shed_first_with_a_503() -> None:
    app = App(1)

    async def main() -> list[Any]:
        client = limited(app, SHED)
        paths = ["/report", "/report", "/report", "/x", "/x", "/pay", "/pay"]
        return await asyncio.gather(*(client.ask(path) for path in paths))

    answers = run_virtually(main())
    assert [status for status, _, _ in answers] == [200, 200, 503, 200, 503, 200, 503]
    assert json.loads(answers[2][2])["limit"] == "backend"


def test_problem_details_tell_of_reduced_capacity() -> None:
    async def main() -> list[Any]:
        client = limited(App(1), SHED)
        problem = "application/problem+json"
        return await asyncio.gather(*(client.ask("/report", accept=problem) for _ in range(3)))

    body = json.loads(run_virtually(main())[2][2])
    assert body["type"].endswith("#temporary-reduced-capacity")
    assert body["status"] == 503
    assert body["violated-policies"] == ["backend"]


def test_a_slot_is_kept_for_as_long_as_its_request_lasts_and_no_longer() -> None:
    async def main() -> list[int]:
        rules = "rules: [{id: one, key_by: global, concurrency: {limit: 1, ttl: 2s}}]"
        client = limited(App(10), rules)
        first = asyncio.ensure_future(client.ask("/"))
        await asyncio.sleep(9)
        during, _, _ = await client.ask("/")
        status, _, _ = await first
        after, _, _ = await client.ask("/")
        await asyncio.sleep(2)  # the last round in the background finds no lease
        return [status, during, after, len(asyncio.all_tasks())]

    assert run_virtually(main()) == [200, 429, 200, 1]


SLOW_AND_NARROW = """
rules:
  - {id: exports, key_by: global, shape: {rate: 1 per 10s, queue: 3}}
  - {id: backend, key_by: global, concurrency: {limit: 2, ttl: 3s}}
"""


def test_a_slot_stays_with_a_request_that_waits_for_longer_than_its_lease() -> None:
    app = App(0)

    async def main() -> list[int]:
        client = limited(app, SLOW_AND_NARROW)
        await client.ask("/0")
        waiting = [asyncio.ensure_future(client.ask(f"/{n}")) for n in (1, 2)]
        await asyncio.sleep(8)
        status, shown, _ = await client.ask("/3")
        assert '"backend";r=0' in shown["ratelimit"]
        return [status, *(answer[0] for answer in await asyncio.gather(*waiting))]

    assert run_virtually(main()) == [429, 200, 200]


def test_who_leaves_an_inner_queue_is_charged_nothing_further_out_either() -> None:
    async def main() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        inner = limited(App(0), SHAPE).app
        client = Client(RateLimitMiddleware(inner, limits="3/hour", clock=loop.time_ns))
        await client.ask("/0")
        gone, _, _ = await client.ask("/1", leaves_after=0.05)
        _, shown, _ = await client.ask("/2")
        return gone, shown["ratelimit"]

    gone, shown = run_virtually(main())
    assert gone == 0
    assert '"default";r=1;' in shown


def test_how_long_a_websocket_was_open_does_not_move_slots() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await asyncio.sleep(1_000)

    async def main() -> list[int | None]:
        limiting = limited(app, ADAPTIVE).app

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            pass

        scope = {"type": "websocket", "path": "/", "headers": [], "client": ("1.2.3.4", 1)}
        await asyncio.gather(*(limiting(dict(scope), receive, send) for _ in range(20)))
        return [one.limit for one in limiting.limiter.queues.gates()]

    assert run_virtually(main()) == [20]
