"""An app whose backend struggles lowers its limits by itself, on virtual time."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Any

import pytest

from headgate.integrations import RequestLimiter, pressure
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.slow_apps import App, Client

RULES = """
version: 1
pressure: {latency: 100ms, errors: 20%, interval: 1s}
rules:
  - id: per-tenant
    key_by: tenant
    limit: 100/s
    adaptive: {floor: 20%}
"""
CALM = RULES.replace("pressure: {latency: 100ms, errors: 20%, interval: 1s}\n", "")


@pytest.fixture(autouse=True)
def _virtual_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    def now_ns() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.time_ns()

    monkeypatch.setattr(pressure, "perf_counter_ns", now_ns)


def made(rules: str = RULES) -> RequestLimiter:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return RequestLimiter(policy=read_policy(rules), clock=loop.time_ns)


async def drive(client: Client, seconds: float, per_second: int = 50) -> list[Any]:
    """A steady stream of requests, answered or not when the next one comes."""
    tasks = []
    for _ in range(int(seconds * per_second)):
        tasks.append(asyncio.ensure_future(client.ask("/", x_tenant_id="a")))
        await asyncio.sleep(1 / per_second)
    return await asyncio.gather(*tasks)


def test_a_slow_backend_lowers_the_limits_and_a_quick_one_restores_them() -> None:
    app = App(0.01)

    async def main() -> list[Fraction]:
        limiter = made()
        assert limiter.pressure is not None
        client = Client(RateLimitMiddleware(app, limiter))
        seen = []
        for seconds, latency in ((5, 0.01), (20, 0.5), (80, 0.01)):
            app.seconds = latency
            await drive(client, seconds)
            seen.append(limiter.pressure.factor)
        await limiter.aclose()
        return seen

    calm, pressed, again = run_virtually(main())
    assert calm == again == 1
    assert pressed < Fraction(1, 2)


def test_what_is_refused_while_limits_are_lowered_is_a_503() -> None:
    async def main() -> list[int]:
        limiter = made()
        assert limiter.pressure is not None
        client = Client(RateLimitMiddleware(App(0.5), limiter))
        await drive(client, 30, per_second=90)
        answers = await asyncio.gather(*(client.ask("/", x_tenant_id="a") for _ in range(150)))
        await limiter.aclose()
        return [status for status, _, _ in answers]

    statuses = run_virtually(main())
    assert set(statuses) == {200, 503}


def test_errors_are_pressure_too() -> None:
    async def main() -> Fraction:
        limiter = made()
        assert limiter.pressure is not None
        await drive(Client(RateLimitMiddleware(App(0.001, status=500), limiter)), 10)
        return limiter.pressure.factor

    assert run_virtually(main()) < 1


def test_a_signal_of_the_apps_own_is_pressure() -> None:
    async def main() -> tuple[Fraction, Fraction]:
        limiter = made()
        assert limiter.pressure is not None
        before = limiter.pressure.factor
        for _ in range(10):
            limiter.signal("database", 1.5)
            await asyncio.sleep(1)
        after = limiter.pressure.factor
        await limiter.aclose()
        return before, after

    before, after = run_virtually(main())
    assert before == 1
    assert after < 1


def test_a_policy_without_pressure_restores_the_limits_at_once() -> None:
    async def main() -> list[Fraction]:
        limiter = made()
        assert limiter.pressure is not None
        assert limiter.rules is not None
        client = Client(RateLimitMiddleware(App(0.5), limiter))
        await drive(client, 20)
        seen = [limiter.pressure.factor]
        limiter.rules.replace(read_policy(CALM))
        seen.append(limiter.pressure.factor)
        await drive(client, 5)
        seen.append(limiter.pressure.factor)
        await limiter.aclose()
        return seen

    pressed, calm, still = run_virtually(main())
    assert pressed < 1
    assert calm == still == 1


def test_without_pressure_in_the_policy_nothing_is_measured() -> None:
    async def main() -> int:
        limiter = made(CALM)
        await drive(Client(RateLimitMiddleware(App(0.5), limiter)), 3)
        return len(asyncio.all_tasks())

    assert run_virtually(main()) == 1


def test_how_long_a_websocket_was_open_says_nothing_of_how_the_app_fares() -> None:
    async def chat(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.sleep(600)

    async def main() -> Fraction:
        limiter = made()
        assert limiter.pressure is not None
        app = RateLimitMiddleware(chat, limiter)

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(_: Any) -> None:
            pass

        scope = {"type": "websocket", "path": "/", "headers": [], "client": ("1.2.3.4", 1)}
        await asyncio.gather(*(app(dict(scope), receive, send) for _ in range(50)))
        await asyncio.sleep(3)
        factor = limiter.pressure.factor
        await limiter.aclose()
        return factor

    assert run_virtually(main()) == 1


def test_a_gate_that_is_closed_leaves_no_limit_lowered_and_can_be_used_again() -> None:
    async def main() -> list[Fraction]:
        limiter, app = made(), App(0.5)
        assert limiter.pressure is not None
        client = Client(RateLimitMiddleware(app, limiter))
        seen = []
        for _ in range(2):
            await drive(client, 20)
            seen.append(limiter.pressure.factor)
            await limiter.aclose()
            seen.append(limiter.pressure.factor)
        assert len(asyncio.all_tasks()) == 1
        return seen

    lowered, closed, again, at_last = run_virtually(main())
    assert lowered < 1
    assert again < 1
    assert closed == at_last == 1


def test_whoever_is_blocked_is_so_under_pressure_too() -> None:
    override = "{rule: per-tenant, key: tenant=evil, block: true, until: 2099-01-01T00:00:00Z}"
    rules = f"{RULES}overrides:\n  - {override}\n"

    async def main() -> tuple[int, int]:
        limiter = made(rules)
        assert limiter.rules is not None
        client = Client(RateLimitMiddleware(App(0), limiter))
        await client.ask(x_tenant_id="a")  # from now on the pressure is watched
        limiter.rules.scale.factor = Fraction(1, 5)
        blocked, _, _ = await client.ask(x_tenant_id="evil")
        for _ in range(20):
            await client.ask(x_tenant_id="a")
        refused, _, _ = await client.ask(x_tenant_id="a")
        await limiter.aclose()
        return blocked, refused

    assert run_virtually(main()) == (429, 503)
