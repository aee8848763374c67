"""Replicas of the quota service that share their ledgers through real servers."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.clock import MonotonicClock
from headgate.errors import StoreError
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.rlqs import QuotaCalls, RlqsOptions
from headgate.service.rlqs.allocation import GatewayState, allocate
from headgate.service.rlqs.rates import MILLION, Allowance
from headgate.service.rlqs.redis_ledgers import RedisLedgerStore
from headgate.units import SECOND
from tests.support.rlqs_gateways import PER_USER, Line
from tests.support.servers import ClusterSetup, RedisServer, SentinelSetup

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from headgate.service.rlqs.allocation import Allocation
    from headgate.service.rlqs.ledger import Ledger
    from headgate.service.rlqs.shared import Step

LIMIT = Allowance(Fraction(100), 100)
OPTIONS = RlqsOptions(ttl=4, delivery=0.5)
ADA = {"user": "ada"}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server: RedisServer) -> None:
    server.cli("flushall")


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def step_of(**states: GatewayState) -> Step:
    def step(ledger: Ledger | None, now_ns: int, opens_ns: int) -> Allocation:
        return allocate(
            ledger,
            now_ns,
            allowance=LIMIT,
            states=states,
            options=OPTIONS,
            opens_ns=opens_ns,
        )

    return step


def test_replicas_that_turn_at_once_lose_nothing(server: RedisServer) -> None:
    async def scene() -> None:
        boards = [RedisLedgerStore(server.url) for _ in range(4)]

        async def turns_of(n: int) -> None:
            for place in range(n, 24, 4):
                await boards[n].update("ledger", step_of(**{f"g{place}": GatewayState(None)}))

        await asyncio.gather(*(turns_of(n) for n in range(4)))
        allocation = await boards[0].update("ledger", step_of())
        assert set(allocation.ledger.claims) == {f"g{n}" for n in range(24)}
        assert allocation.ledger.rate <= LIMIT.millionths
        assert allocation.ledger.burst * MILLION + allocation.ledger.pool <= LIMIT.burst * MILLION
        for board in boards:
            await board.aclose()

    run(scene)


def test_a_replica_that_starts_knows_what_was_given_before(server: RedisServer) -> None:
    async def scene() -> None:
        before = RedisLedgerStore(server.url)
        await before.update("ledger", step_of(a=GatewayState(None)))
        await before.aclose()
        after = RedisLedgerStore(server.url)
        allocation = await after.update("ledger", step_of(b=GatewayState(None)))
        assert allocation.ledger.claims["a"].rate == 95 * MILLION
        assert allocation.ledger.claims["b"].rate <= 5 * MILLION
        await after.aclose()

    run(scene)


def test_a_turn_is_one_round_trip_and_its_key_does_not_live_for_ever(server: RedisServer) -> None:
    async def scene() -> None:
        board = RedisLedgerStore(server.url, namespace="mine")
        allocation = await board.update("ledger", step_of(a=GatewayState(None)))
        calls = _calls(server)
        made_ns = allocation.ledger.claims["a"].made_ns
        await board.update("ledger", step_of(a=GatewayState(50 * MILLION, 0, made_ns)))
        assert _calls(server) == calls + 1
        (key,) = server.cli("keys", "*").split()
        assert key.startswith("mine&rlqs:")
        assert 0 < int(server.cli("pttl", key)) < 120_000
        await board.aclose()

    run(scene)


def _calls(server: RedisServer) -> int:
    lines = server.cli("info", "commandstats").splitlines()
    named = [line for line in lines if line.startswith(("cmdstat_eval:", "cmdstat_evalsha:"))]
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in named)


def test_a_forgotten_script_is_sent_again(server: RedisServer) -> None:
    async def scene() -> None:
        board = RedisLedgerStore(server.url)
        await board.update("ledger", step_of(a=GatewayState(None)))
        server.cli("script", "flush")
        allocation = await board.update("ledger", step_of(b=GatewayState(None)))
        assert set(allocation.ledger.claims) == {"a", "b"}
        await board.aclose()

    run(scene)


def test_a_ledger_that_the_server_lost_is_what_it_was_when_last_seen(server: RedisServer) -> None:
    async def scene() -> None:
        board = RedisLedgerStore(server.url)
        await board.update("ledger", step_of(a=GatewayState(None)))
        server.cli("flushall")
        allocation = await board.update("ledger", step_of(b=GatewayState(None)))
        assert allocation.ledger.claims["a"].rate == 95 * MILLION
        await board.aclose()

    run(scene)


def test_a_server_whose_clock_is_behind_the_one_before_it_does_not_stop_time(
    server: RedisServer,
) -> None:
    hour_ns = 3_600 * SECOND

    def an_hour_ahead(ledger: Ledger | None, now_ns: int, opens_ns: int) -> Allocation:
        return step_of(a=GatewayState(None))(ledger, now_ns + hour_ns, opens_ns)

    async def scene() -> None:
        before, after = RedisLedgerStore(server.url), RedisLedgerStore(server.url)
        ahead = await before.update("ledger", an_hour_ahead)
        allocation = await after.update("ledger", step_of(b=GatewayState(None)))
        assert allocation.ledger.at_ns < ahead.ledger.at_ns - hour_ns // 2
        # Nothing has ended because of it, and nothing lasts an hour longer.
        assert allocation.ledger.claims["a"].rate == 95 * MILLION
        left = allocation.ledger.claims["a"].free_at_ns - allocation.ledger.at_ns
        assert 0 < left <= OPTIONS.ttl_ns + OPTIONS.delivery_ns
        for board in (before, after):
            await board.aclose()

    run(scene)


def test_a_server_that_is_gone_is_an_error_of_the_store() -> None:
    async def scene() -> None:
        with RedisServer() as server:
            board = RedisLedgerStore(server.url)
            await board.update("ledger", step_of(a=GatewayState(None)))
        with pytest.raises(StoreError):
            await board.update("ledger", step_of(b=GatewayState(None)))
        await board.aclose()

    run(scene)


@pytest.mark.parametrize("setup", [ClusterSetup, SentinelSetup])
def test_ledgers_are_kept_by_clusters_and_behind_sentinels_too(setup: Any) -> None:
    async def scene(url: str) -> None:
        boards = [RedisLedgerStore(url), RedisLedgerStore(url)]
        for n in range(20):
            await boards[0].update(f"ledger-{n}", step_of(a=GatewayState(None)))
            allocation = await boards[1].update(f"ledger-{n}", step_of(b=GatewayState(None)))
            assert set(allocation.ledger.claims) == {"a", "b"}
        for board in boards:
            await board.aclose()

    with setup() as servers:
        asyncio.run(scene(servers.url))


def _replica(url: str) -> tuple[QuotaCalls, AsyncRuleEngine]:
    engine = AsyncRuleEngine(read_policy(PER_USER), store=url)
    core = Core(rules=engine, clock=MonotonicClock(), secret=b"secret")
    return QuotaCalls(core, OPTIONS, ledgers=RedisLedgerStore(url)), engine


class _Streams:
    """What a `Line` needs of a service."""

    def __init__(self, calls: QuotaCalls) -> None:
        self.calls = calls


async def _until(condition: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (real servers, and nobody who would tell)
            await asyncio.sleep(0.02)


def test_gateways_on_two_replicas_share_one_limit(server: RedisServer) -> None:
    async def scene() -> None:
        replicas = [_replica(server.url), _replica(server.url)]
        lines = []
        for calls, _ in replicas:
            await calls.start()
            lines.append(Line(_Streams(calls)))
        one, other = lines
        await one.report((ADA, 0, 1, 0))
        await _until(lambda: one.rate(**ADA) == 95)
        await other.report((ADA, 0, 1, 0))
        await _until(lambda: one.rate(**ADA) == other.rate(**ADA) == 47.5)
        # One replica ends; its gateway's part is free when its time is over.
        await replicas[0][0].aclose()
        await _until(one.listening.done)
        await _until(lambda: other.rate(**ADA) == 95)
        await replicas[1][0].aclose()
        await _until(other.listening.done)
        for _, engine in replicas:
            await engine.aclose()

    run(scene)
