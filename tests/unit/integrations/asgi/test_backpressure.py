"""What a response says of the queue is true for whom it is sent to."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations.asgi import FairMiddleware, RateLimitMiddleware
from headgate.observability import METRICS
from headgate.overload import AsyncFairGate
from headgate.policy.loader import read_policy
from headgate.responses import ResponseOptions
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.slow_apps import App, Client

if TYPE_CHECKING:
    from headgate.clock import Clock

TURNS = """
version: 1
rules:
  - id: turns
    key_by: tenant
    fair: {slots: 1, weights: {paid: 2, default: 1}, queue: 100, max_wait: 60s}
"""

SHAPE = """
version: 1
rules:
  - id: exports
    key_by: global
    shape: {rate: 10/s, queue: 10}
"""


def wait(answer: tuple[int, Any, bytes]) -> float | None:
    found = re.search(r";wait=([0-9.]+)", answer[1]["headgate-queue"])
    return None if found is None else float(found.group(1))


def clock() -> Clock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.time_ns


def own_gate(app: App, **options: Any) -> Client:
    gate = AsyncFairGate(slots=1, queue=100, max_wait=60, clock=clock(), name="turns")
    options["tenant"] = lambda request: request.header("x-tenant-id")
    return Client(FairMiddleware(app, gate, clock=clock(), **options))


def by_rules(app: App, **options: Any) -> Client:
    policy = read_policy(TURNS)
    return Client(RateLimitMiddleware(app, policy=policy, clock=clock(), **options))


@pytest.mark.parametrize("make", [own_gate, by_rules])
def test_who_has_many_waiting_is_told_of_its_own_wait_and_not_of_a_newcomers(make: Any) -> None:
    async def main() -> Any:
        client = make(App(1))
        await client.ask("/0", x_tenant_id="new")  # how long a turn takes is known from then on
        many = [client.ask(f"/{n}", x_tenant_id="greedy") for n in range(10)]
        *_, last = answers = await asyncio.gather(*many, client.ask("/n", x_tenant_id="new"))
        return answers[0], last

    greedy, new = run_virtually(main())
    assert wait(greedy) == pytest.approx(11)  # nine of its own wait, and one of the other's
    assert wait(new) == pytest.approx(2)


def test_a_wait_that_nobody_can_know_yet_is_not_told() -> None:
    async def main() -> Any:
        client = by_rules(App(1))
        return await asyncio.gather(*(client.ask(f"/{n}", x_tenant_id="a") for n in range(3)))

    first, second, _ = run_virtually(main())
    assert "waiting=2" in first[1]["headgate-queue"]
    assert wait(first) is None  # no turn has ever ended
    assert wait(second) == pytest.approx(2)


def test_metrics_tell_how_long_those_will_wait_who_wait() -> None:
    async def main() -> list[float]:
        client = by_rules(App(1))
        await client.ask("/0", x_tenant_id="new")
        asked = [asyncio.ensure_future(client.ask(f"/{n}", x_tenant_id="a")) for n in range(4)]
        found = []
        for _ in range(4):
            await asyncio.sleep(0.5)
            found.append(METRICS.value("gate_wait_seconds", gate="turns"))
            await asyncio.sleep(0.5)
        await asyncio.gather(*asked)
        return found

    assert run_virtually(main()) == [3, 2, 1, 0]


def test_metrics_tell_how_long_those_will_wait_who_wait_at_a_rate() -> None:
    async def main() -> list[float]:
        gate = AsyncFairGate(rate="1/s", queue=10, clock=clock(), name="paced")
        asked = [asyncio.ensure_future(gate.enter("a")) for _ in range(4)]
        await asyncio.sleep(0.5)
        found = [METRICS.value("gate_wait_seconds", gate="paced")]
        await asyncio.gather(*asked)
        return [*found, METRICS.value("gate_wait_seconds", gate="paced")]

    assert run_virtually(main()) == [2.5, 0]


def test_metrics_count_requests_that_a_shape_holds() -> None:
    async def main() -> tuple[float, float]:
        policy = read_policy(SHAPE)
        client = Client(RateLimitMiddleware(App(0), policy=policy, clock=clock()))
        asked = [asyncio.ensure_future(client.ask(f"/{n}")) for n in range(3)]
        await asyncio.sleep(0.05)
        meanwhile = METRICS.value("shaper_waiting")
        await asyncio.gather(*asked)
        return meanwhile, METRICS.value("shaper_waiting")

    assert run_virtually(main()) == (2, 0)


@pytest.mark.parametrize("make", [own_gate, by_rules])
def test_balancers_hear_how_much_is_done_and_not_how_much_is_refused(make: Any) -> None:
    async def main() -> Any:
        client = make(App(0.1), responses=ResponseOptions(orca=True))
        many = [client.ask(f"/{n}", x_tenant_id="a") for n in range(101)]
        return await asyncio.gather(*many, client.ask("/refused", x_tenant_id="a"))

    *_, last, refused = run_virtually(main())
    report = json.loads(last[1]["endpoint-load-metrics"].removeprefix("JSON "))
    assert report["rps_fractional"] == pytest.approx(10, rel=0.2)
    assert refused[0] == 503
    assert "rps_fractional" not in refused[1]["endpoint-load-metrics"]  # nothing was done by then


@pytest.mark.parametrize("headers", ["off", "redacted"])
def test_a_rule_that_tells_nothing_does_not_tell_how_its_queue_stands(headers: str) -> None:
    async def main() -> Any:
        policy = read_policy(TURNS.replace("queue: 100", "queue: 0") + f"    headers: {headers}\n")
        limited = RateLimitMiddleware(App(1), policy=policy, clock=clock())
        return await asyncio.gather(*(Client(limited).ask(f"/{n}") for n in range(2)))

    passed, refused = run_virtually(main())
    assert [passed[0], refused[0]] == [200, 503]
    assert "headgate-queue" not in passed[1] | refused[1]
