"""Checks that are ready in one instant travel together, and come out as if each went alone."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.limiters import KINDS, bucket, limiting
from tests.support.servers import RedisServer, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.decision import Decision

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

A_PROCESS = """
import sys
from headgate import RateLimiter
from tests.support.limiters import bucket

url, limit, hits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with RateLimiter(bucket(limit), store=url, name="processes") as limiter:
    limiter.peek("key")
    print("ready", flush=True)
    sys.stdin.readline()
    decisions = [limiter.hit("key") for _ in range(hits)]
assert {decision.source for decision in decisions} == {"store"}
print(sum(decision.allowed for decision in decisions))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def one_by_one(limit: int, asked: Sequence[tuple[str, int]]) -> list[Decision]:
    """What a limiter in this process decides when it is asked in that order."""
    limiter = RateLimiter(bucket(limit), clock=ManualClock(1_700_000_000))
    return [limiter.hit(*one) for one in asked]


def figures(decisions: Sequence[Decision]) -> list[tuple[str, bool, int]]:
    return [(one.key, one.allowed, one.remaining) for one in decisions]


class TestOneLoop:
    def test_two_hundred_hits_of_one_tick_need_few_calls(self, server: RedisServer) -> None:
        with limiting("async", server.url) as one:
            one.hit()
            before = server.calls("evalsha")
            decisions = one.hit_together([(f"key-{n % 50}", 1) for n in range(200)])
            assert all(decision.source == "store" for decision in decisions)
            assert server.calls("evalsha") - before <= 40

    def test_the_first_in_line_are_admitted(self, server: RedisServer) -> None:
        with limiting("async", server.url, bucket(50)) as one:
            decisions = one.hit_together([("key", 1)] * 200)
            assert [decision.allowed for decision in decisions] == [True] * 50 + [False] * 150
            remaining = [decision.remaining for decision in decisions]
            assert remaining == [*range(49, -1, -1), *[0] * 150]

    @pytest.mark.parametrize("costs", [(6, 5, 4, 1, 0, 2), (11, 10, 1), (3, 3, 3, 3, 1, 1)])
    def test_different_costs_of_one_key_keep_their_order(
        self, server: RedisServer, costs: Sequence[int]
    ) -> None:
        asked = [("key", cost) for cost in costs]
        with limiting("async", server.url, bucket(10)) as one:
            assert figures(one.hit_together(asked)) == figures(one_by_one(10, asked))

    def test_many_keys_and_costs_come_out_as_if_asked_one_by_one(self, server: RedisServer) -> None:
        chance = random.Random(7)
        for _ in range(5):
            asked = [(f"key-{chance.randrange(7)}", chance.randrange(5)) for _ in range(300)]
            with limiting("async", server.url, bucket(40)) as one:
                assert figures(one.hit_together(asked)) == figures(one_by_one(40, asked))

    def test_a_cancelled_caller_disturbs_no_other(self, server: RedisServer) -> None:
        async def hit_and_cancel() -> list[Decision | BaseException]:
            limiter = AsyncRateLimiter(
                bucket(500), store=server.url, name="api", namespace="cancelled"
            )
            tasks = [asyncio.create_task(limiter.hit("key")) for _ in range(200)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            try:
                decisions = await asyncio.gather(*tasks, return_exceptions=True)
                return [*decisions, await limiter.peek("key", 0)]
            finally:
                await limiter.aclose()

        *ended, after = asyncio.run(hit_and_cancel())
        decided = [one for one in ended if not isinstance(one, BaseException)]
        assert not isinstance(after, BaseException)
        assert len(decided) >= len(ended) - len(ended[::3])
        assert all(one.allowed and one.source == "store" for one in decided)
        assert len(decided) <= 500 - after.remaining <= 200


class TestBothKinds:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_lone_hit_is_one_call(self, kind: str, server: RedisServer) -> None:
        with limiting(kind, server.url) as one:
            one.hit()
            before = server.calls("evalsha")
            one.hit()
            assert server.calls("evalsha") - before == 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_hit_many_is_one_call_or_few(self, kind: str, server: RedisServer) -> None:
        with limiting(kind, server.url, bucket(50)) as one:
            one.driven.hit_many(["key"])
            before = server.calls("evalsha")
            decisions = one.driven.hit_many([("other", 1)] * 60)
            assert [decision.allowed for decision in decisions] == [True] * 50 + [False] * 10
            assert server.calls("evalsha") - before <= 4

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("foreign", [("rpush", "x"), ("sadd", "x"), ("set", "rubbish")])
    def test_a_check_that_fails_fails_alone(
        self, kind: str, foreign: tuple[str, str], server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            one.hit("spoilt")
            name = next(k for k in server.cli("--scan").split() if "spoilt" in k)
            server.cli("del", name)
            server.cli(foreign[0], name, foreign[1])
            keys = [*[f"sound-{n}" for n in range(10)], "spoilt"] * 5
            decisions = one.hit_together([(key, 1) for key in keys])
            for key, decision in zip(keys, decisions, strict=True):
                if key != "spoilt":
                    assert (decision.source, decision.allowed) == ("store", True)
                assert decision.allowed or decision.source == "fail_closed"
            assert [one.used(f"sound-{n}") for n in range(10)] == [5] * 10
            server.cli("del", name)


class TestManyClients:
    @pytest.mark.parametrize("kind", KINDS)
    def test_all_that_share_a_store_admit_exactly_the_limit(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url, bucket(700)) as one:
            decisions = one.hit_together([("key", 1)] * 1_000)
            assert {decision.source for decision in decisions} == {"store"}
            assert sum(decision.allowed for decision in decisions) == 700

    def test_forty_stores_admit_exactly_the_limit(self, server: RedisServer) -> None:
        url = server.url
        limiters = [
            RateLimiter(bucket(333), store=RedisStore(url), name="api", namespace="forty")
            for _ in range(40)
        ]
        with ThreadPoolExecutor(40) as pool:
            admitted = list(
                pool.map(lambda one: sum(bool(one.hit("key")) for _ in range(20)), limiters)
            )
        for limiter in limiters:
            limiter.close()
        assert sum(admitted) == 333

    def test_forty_async_stores_admit_exactly_the_limit(self, server: RedisServer) -> None:
        async def hit_all_at_once() -> list[Decision]:
            stores = [RedisStore(server.url) for _ in range(40)]
            limiters = [
                AsyncRateLimiter(bucket(333), store=store, name="api", namespace="forty-async")
                for store in stores
            ]
            try:
                return await asyncio.gather(*(one.hit("key") for one in limiters * 20))
            finally:
                await asyncio.gather(*(one.aclose() for one in limiters))

        decisions = asyncio.run(hit_all_at_once())
        assert {decision.source for decision in decisions} == {"store"}
        assert sum(decision.allowed for decision in decisions) == 333

    def test_processes_admit_exactly_the_limit(self, server: RedisServer) -> None:
        call = [sys.executable, "-c", A_PROCESS, server.url, "700", "500"]
        root = Path(__file__).parents[2]
        processes = [
            subprocess.Popen(  # noqa: S603
                call, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        admitted = [int(process.communicate()[0]) for process in processes]
        assert sum(admitted) == 700
