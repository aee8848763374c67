"""Nobody overspends: fifty calls at the same time against a budget of ten.

Each call may use what it reserves, and uses all of the output that it may. So no more than ten are
sent, and what they use in total is no more than the budget: in one process, in four on one Redis,
with one of them killed, and with Redis paused. Counted after the fact, all fifty are sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from headgate.clients import NotSentError, RetryPolicy
from headgate.clients.httpx2 import AsyncPacedTransport
from headgate.engine.request import Request
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from tests.support.llm_upstream import CHAT, Behaviour, llm_upstream
from tests.support.servers import RedisServer, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CALLS = 50
OUTPUT = 100
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": OUTPUT,
    "stream": True,
    "stream_options": {"include_usage": True},
}
BODY = json.dumps(ASKED).encode()
ESTIMATE = OUTPUT + -(-len(BODY) // 4)
BUDGET = 10 * ESTIMATE
HELD = Behaviour(output_tokens=OUTPUT, hold_after=1)
POLICY = f"""
version: 1
rules:
  - id: tokens
    match: {{endpoint: /v1/**}}
    key_by: ip
    limit: {BUDGET}/day strict
    cost: {{llm: {{count: tokens, hold: 1h}}}}
    on_store_failure: fail_closed
"""

PROCESS = """
import asyncio, json, sys
import httpx2
from headgate.clients import NotSentError, RetryPolicy
from headgate.clients.httpx2 import AsyncPacedTransport

url, store, policy, count, body = sys.argv[1:]

async def main():
    paced = AsyncPacedTransport(policy=policy, store=store, retry=RetryPolicy(max_wait=0))
    async with httpx2.AsyncClient(transport=paced, timeout=60) as client:
        async def call():
            try:
                response = await client.post(url, content=body)
            except NotSentError as error:
                print(error.cause, flush=True)
            else:
                print(response.status_code, flush=True)
        await asyncio.gather(*[call() for _ in range(int(count))])

asyncio.run(main())
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "llm.yaml"
    path.write_text(POLICY)
    return path


def charged(store: Any) -> int:
    """The tokens that are charged or reserved in *store*."""
    engine = RuleEngine(read_policy(POLICY), store=store, namespace="outgoing")
    try:
        verdict = engine.peek(Request("POST", CHAT), cost=0)
        return BUDGET - verdict.rules[0].decision.remaining
    finally:
        engine.close()


async def call_all(
    client: httpx2.AsyncClient, url: str, gate: Any, body: bytes = BODY
) -> list[Any]:
    """Make all calls at once; the responses begin before any of them ends."""
    begun: list[Any] = []

    async def call() -> None:
        try:
            async with client.stream("POST", url + CHAT, content=body) as response:
                begun.append(response.status_code)
                await response.aread()
        except NotSentError as error:
            begun.append(error.cause)

    calls = asyncio.gather(*[call() for _ in range(CALLS)])
    async with asyncio.timeout(60):
        while len(begun) < CALLS:  # noqa: ASYNC110 (responses have no event)
            await asyncio.sleep(0.001)
    gate.set()
    await calls
    return begun


def test_one_client_does_not_overspend() -> None:
    async def story(url: str, gate: Any) -> list[Any]:
        paced = AsyncPacedTransport(policy=read_policy(POLICY), retry=RetryPolicy(max_wait=0))
        async with httpx2.AsyncClient(transport=paced, timeout=60) as client:
            return await call_all(client, url, gate)

    with llm_upstream(HELD) as upstream:
        found = asyncio.run(story(upstream.url, upstream.gate))
        assert (found.count(200), found.count("policy")) == (10, 40)
        assert upstream.tokens <= BUDGET


def test_calls_that_use_more_than_they_reserve_exceed_the_budget_by_no_more_than_that() -> None:
    """Half of their output is not reserved: it becomes debt, and the next call is denied."""
    asked = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    body = json.dumps(asked).encode()
    estimate = OUTPUT // 2 + -(-len(body) // 4)
    text = POLICY.replace(f"{BUDGET}/day", f"{10 * estimate}/day")
    text = text.replace("hold: 1h", f"hold: 1h, default_output: {OUTPUT // 2}")

    async def story(url: str, gate: Any) -> list[Any]:
        paced = AsyncPacedTransport(policy=read_policy(text), retry=RetryPolicy(max_wait=0))
        async with httpx2.AsyncClient(transport=paced, timeout=60) as client:
            found = await call_all(client, url, gate, body)
            with pytest.raises(NotSentError):
                await client.post(url + CHAT, content=body)
            return found

    with llm_upstream(HELD) as upstream:
        found = asyncio.run(story(upstream.url, upstream.gate))
        assert (found.count(200), found.count("policy")) == (10, 40)
        beyond = sum(max(one.tokens - estimate, 0) for one in upstream.calls)
        assert 10 * estimate < upstream.tokens <= 10 * estimate + beyond


def test_counted_after_the_fact_all_are_sent() -> None:
    """The check that others make: a call is sent if the budget is not yet used up."""

    async def story(url: str, gate: Any) -> tuple[int, int]:
        used = sent = 0
        begun = asyncio.Barrier(CALLS)

        async def call(client: httpx2.AsyncClient) -> None:
            nonlocal used, sent
            if used < BUDGET:
                sent += 1
                async with client.stream("POST", url + CHAT, content=BODY) as response:
                    await begun.wait()
                    gate.set()
                    text = (await response.aread()).decode()
                last = [line for line in text.splitlines() if '"usage": {' in line][-1]
                used += json.loads(last.removeprefix("data: "))["usage"]["total_tokens"]

        limits = httpx2.Limits(max_connections=CALLS)
        async with httpx2.AsyncClient(timeout=60, limits=limits) as client:
            await asyncio.gather(*[call(client) for _ in range(CALLS)])
        return sent, used

    with llm_upstream(HELD) as upstream:
        sent, used = asyncio.run(story(upstream.url, upstream.gate))
        assert (sent, used) == (CALLS, upstream.tokens)
        assert used > 3 * BUDGET


def test_an_app_does_not_overspend() -> None:
    async def story(url: str, gate: Any) -> list[Any]:
        async with httpx2.AsyncClient(timeout=60) as client:

            async def app(scope: Any, receive: Any, send: Any) -> None:
                assert scope["type"] == "http"
                message = await receive()
                async with client.stream("POST", url + CHAT, content=message["body"]) as response:
                    kind = response.headers["content-type"].encode()
                    headers = [(b"content-type", kind)]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    begun.append(200)
                    async for part in response.aiter_bytes():
                        body = {"type": "http.response.body", "body": part, "more_body": True}
                        await send(body)
                await send({"type": "http.response.body", "body": b""})

            begun: list[int] = []
            limited = RateLimitMiddleware(app, policy=read_policy(POLICY))
            transport = httpx2.ASGITransport(limited)
            async with httpx2.AsyncClient(transport=transport, base_url="http://app") as own:

                async def call() -> int:
                    response = await own.post(CHAT, content=BODY)
                    begun.append(response.status_code)
                    return int(response.status_code)

                calls = asyncio.gather(*[call() for _ in range(CALLS)])
                async with asyncio.timeout(60):
                    while len(begun) < CALLS:  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                gate.set()
                return list(await calls)

    with llm_upstream(HELD) as upstream:
        found = asyncio.run(story(upstream.url, upstream.gate))
        assert (found.count(200), found.count(429)) == (10, 40)
        assert upstream.tokens <= BUDGET


class Fleet:
    """Processes that make calls at the same time, with their output in files."""

    def __init__(self, url: str, redis: RedisServer, policy: Path, folder: Path) -> None:
        arguments = [url + CHAT, redis.url, str(policy)]
        self.logs = [folder / f"process-{number}" for number in range(4)]
        self.processes = [
            Process([sys.executable, "-c", PROCESS, *arguments, "13", BODY.decode()], log)
            for log in self.logs
        ]

    def found(self) -> list[str]:
        return [line for log in self.logs for line in log.read_text().split()]

    def wait(self) -> None:
        wait_until(lambda: not any(one.is_running for one in self.processes), "they have ended")

    def close(self) -> None:
        for one in self.processes:
            one.terminate()


def test_four_processes_on_one_redis_do_not_overspend(
    redis: RedisServer, policy: Path, tmp_path: Path
) -> None:
    with llm_upstream(HELD) as upstream:
        fleet = Fleet(upstream.url, redis, policy, tmp_path)
        try:
            wait_until(lambda: len(fleet.found()) == 42, "all but ten are denied")
            upstream.gate.set()
            fleet.wait()
            found = fleet.found()
            assert (found.count("200"), found.count("policy")) == (10, 42)
            assert charged(redis.url) == upstream.tokens <= BUDGET
        finally:
            fleet.close()


def test_a_process_that_is_killed_has_used_what_it_reserved(
    redis: RedisServer, policy: Path, tmp_path: Path
) -> None:
    with llm_upstream(HELD) as upstream:
        fleet = Fleet(upstream.url, redis, policy, tmp_path)
        try:
            wait_until(lambda: len(fleet.found()) == 42, "all but ten are denied")
            counts = [13 - len(log.read_text().split()) for log in fleet.logs]
            most = counts.index(max(counts))
            fleet.processes[most].kill()
            upstream.gate.set()
            fleet.wait()
            lost, sent = counts[most], 10 - counts[most]
            assert fleet.found().count("200") == sent
            each = (charged(redis.url) - lost * ESTIMATE) / sent if sent else 0
            assert each in (0, *[one.tokens for one in upstream.calls if one.is_complete])
            assert upstream.tokens <= BUDGET
        finally:
            fleet.close()


def test_calls_in_flight_while_redis_is_paused_have_used_what_they_reserved(
    redis: RedisServer, policy: Path, tmp_path: Path
) -> None:
    with llm_upstream(HELD) as upstream:
        fleet = Fleet(upstream.url, redis, policy, tmp_path)
        try:
            wait_until(lambda: len(fleet.found()) == 42, "all but ten are denied")
            redis.pause()
            upstream.gate.set()
            fleet.wait()
            redis.resume()
            assert fleet.found().count("200") == 10
            later = Fleet(upstream.url, redis, policy, tmp_path)
            later.wait()
            later.close()
            assert upstream.tokens <= charged(redis.url) <= BUDGET
        finally:
            redis.resume()
            fleet.close()
