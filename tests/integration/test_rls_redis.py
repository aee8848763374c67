"""Envoy's rate limit service on a real Redis: the same answers as in memory, in one round trip."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import RateLimitCalls, RlsOptions
from headgate.testing import ManualClock
from tests.support import envoy_messages
from tests.support.rls_client import NOON, OK, OVER, codes_of, desc, request
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from headgate.service.rls.requests import Charging

    Ask = Callable[..., Awaitable[Any]]

POLICY = """
version: 1
rules:
  - {id: user, match: {attributes: {user: true}}, key_by: "attribute:user", limit: 5/minute}
  - id: day
    match: {attributes: {user: true}}
    key_by: global
    limit: 20/day sliding_window_log; 100/week fixed_window
  - {id: trial, match: {attributes: {user: true}}, key_by: global, limit: 2/day, mode: shadow}
  - {id: tokens, match: {attributes: {llm: true}}, key_by: "attribute:llm", limit: 100/minute}
"""
CONFIG = """
domain: legacy
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: gone, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: t, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
"""
ADA, BOB = desc("user=ada"), desc("user=bob")
LOOK = desc("llm=x", hits=0)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@asynccontextmanager
async def serving(
    url: str, name: str, *, clock: ManualClock | None, charge: Charging = "all_or_nothing"
) -> AsyncIterator[Ask]:
    """A service on the store at *url*, with counters of its own."""
    engine = AsyncRuleEngine(read_policy(POLICY), store=url, namespace=name, clock=clock)
    core = Core(
        rules=engine,
        clock=clock or ManualClock(NOON),
        secret=b"x",
        envoy=read_envoy_config([("legacy.yaml", CONFIG)]),
        namespace=name,
    )
    calls = RateLimitCalls(core, RlsOptions(charge=charge))

    async def ask(domain: str, *descriptors: Any, hits: int = 0) -> Any:
        answer = calls.should_rate_limit(request(domain, *descriptors, hits=hits))
        written = answer if isinstance(answer, bytes) else await answer
        return envoy_messages.service.RateLimitResponse.FromString(written)

    try:
        yield ask
    finally:
        await engine.aclose()


SCRIPT: tuple[tuple[Any, ...], ...] = (
    ("edge", ADA),
    ("edge", ADA, BOB),
    ("edge", ADA, ADA, ADA),
    ("edge", ADA),
    ("edge", ADA, BOB, desc("none=x")),
    ("edge", desc("user=ada", hits=2, negative=True)),
    ("edge", desc("user=ada", limit=(9, "HOUR"))),
    ("edge", desc("user=bob", hits=0), LOOK),
    ("edge", LOOK, desc("user=carl")),
    ("edge", desc("llm=x", hits=250)),
    ("edge", LOOK, desc("user=carl")),
    ("edge", LOOK),
    ("edge", desc("what=x", limit=(2, "MINUTE"))),
    ("edge", desc("what=x", limit=(2, "MINUTE")), desc("what=y", limit=(0, "MINUTE"))),
    ("legacy", ADA),
    ("legacy", ADA, desc("gone=x")),
    ("legacy", ADA, desc("t=x")),
    ("legacy", ADA, desc("q=x"), desc("r=x")),
    ("legacy", BOB, desc("q=x"), desc("r=x")),
    ("legacy", BOB, desc("q=x"), desc("r=x"), desc("t=x")),
    ("legacy", desc("user=dora", hits=2)),
    ("legacy", desc("user=dora", hits=2)),
    ("legacy", desc("user=dora", hits=1)),
)


async def play(url: str, name: str, charge: Charging) -> list[Any]:
    clock = ManualClock(NOON + 7.5)
    async with serving(url, name, clock=clock, charge=charge) as ask:
        answers = []
        for _ in range(2):
            for domain, *descriptors in SCRIPT:
                answers.append(await ask(domain, *descriptors))
                clock.advance(0.25)
            clock.advance(70)
        return answers


@pytest.mark.parametrize("charge", ["all_or_nothing", "always"])
def test_redis_answers_as_memory_does(server: RedisServer, charge: Charging) -> None:
    in_memory = asyncio.run(play("memory://", f"same-{charge}", charge))
    on_redis = asyncio.run(play(server.url, f"same-{charge}", charge))
    assert on_redis == in_memory
    assert {one.overall_code for one in in_memory} == {OK, OVER}


def test_all_descriptors_rules_and_shadow_rules_of_a_call_are_one_script(
    server: RedisServer,
) -> None:
    async def scenario() -> None:
        async with serving(server.url, "one", clock=None) as ask:
            await ask("edge", ADA)
            scripts = []
            for descriptors in ((ADA,), (ADA, BOB, desc("user=carl")), (LOOK,)):
                before = server.calls("evalsha") + server.calls("eval")
                answer = await ask("edge", *descriptors)
                assert answer.overall_code == OK
                scripts.append(server.calls("evalsha") + server.calls("eval") - before)
            assert scripts == [1, 1, 1]

    asyncio.run(scenario())


def test_calls_at_the_same_time_never_pass_more_than_the_limit(server: RedisServer) -> None:
    async def scenario() -> list[int]:
        async with serving(server.url, "crowd", clock=ManualClock(NOON)) as ask:
            crowd = [ask("legacy", ADA, desc(f"user=u{n}")) for n in range(60)]
            answers = await asyncio.gather(*crowd)
            passed = [one.overall_code for one in answers].count(OK)
            charged = [await ask("legacy", desc(f"user=u{n}", hits=0)) for n in range(60)]
            others = [one.statuses[0].limit_remaining for one in charged]
            return [passed, others.count(2), others.count(3)]

    assert asyncio.run(scenario()) == [3, 3, 57]


def test_a_store_that_goes_away_is_told_as_each_limit_says() -> None:
    async def scenario() -> None:
        with RedisServer() as server:
            async with serving(server.url, "gone", clock=None) as ask:
                assert (await ask("edge", ADA)).overall_code == OK
                server.stop()
                answer = await ask("edge", ADA, BOB)
                assert codes_of(answer) == [OK, OK]
                with pytest.raises(CallError) as caught:
                    await ask("legacy", ADA)
                assert caught.value.code is Code.UNAVAILABLE

    asyncio.run(scenario())
