"""A fleet under pressure agrees through a real Redis. (The contract tries clusters.)"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from headgate.overload import AsyncPressureControl, PressureControl
from headgate.stores.operations import MOST_PUBLISHERS, PublishValue
from headgate.stores.redis import RedisStore
from headgate.stores.redis.naming import parse_name
from headgate.testing import ManualClock
from headgate.units import HOUR, SECOND
from tests.support.pressure_process import QUICK
from tests.support.servers import RedisServer, SentinelSetup, is_installed, wait_until, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _empty(server: RedisServer) -> None:
    server.cli("flushall")


def test_processes_agree_and_one_that_was_killed_is_forgotten(server: RedisServer) -> None:
    call = [sys.executable, "-m", "tests.support.pressure_process", server.url]
    pipe = subprocess.PIPE
    store = RedisStore(server.url)
    control = PressureControl(QUICK, store=store)
    with subprocess.Popen(call, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:  # noqa: S603 - our own
        lines, told = other.stdout, list[float]()
        assert lines is not None
        assert lines.readline() == "ready\n"

        def listen() -> None:
            for line in lines:
                told.append(float(line))

        listener = Thread(target=listen)
        listener.start()
        try:
            control.signal("db", 2.0, lasts=60)

            def is_lowered() -> bool:
                for _ in range(3):
                    control.record(latency_ns=1)
                return control.factor < 1

            wait_until(is_lowered, "it is lowered here")
            # Who has no requests is not heard: there have to be some until it is.
            wait_until(lambda: is_lowered() and bool(told), "and there, where all is well")
            assert told[0] < 1
            wait_until(lambda: is_lowered() and len(hear(store)) == 2, "each has heard the other")
        finally:
            other.kill()
            listener.join()
    wait_until(lambda: is_lowered() and len(hear(store)) == 1, "the dead one lapses")
    control.signal("db", 0.0, lasts=60)

    def is_whole() -> bool:
        control.record(latency_ns=1)
        return control.factor == 1

    wait_until(is_whole, "all is whole again")
    control.close()
    store.close()


def hear(store: RedisStore) -> tuple[tuple[str, float, float], ...]:
    return store.run(PublishValue("8=headgate=!pressure", "factor", "a test", 1, 0, SECOND))


def test_blocking_and_async_controls_agree(server: RedisServer) -> None:
    async def main() -> None:
        store, async_store = RedisStore(server.url), RedisStore(server.url)
        one = PressureControl(QUICK, store=store)
        other = AsyncPressureControl(QUICK, store=async_store)
        one.signal("db", 2.0, lasts=60)
        deadline = asyncio.get_running_loop().time() + 60
        while not (one.factor < 1 and other.factor < 1):
            assert asyncio.get_running_loop().time() < deadline
            one.record(latency_ns=1)
            other.record(latency_ns=1)
            await asyncio.sleep(0.005)
        await asyncio.to_thread(one.close)
        await other.aclose()
        await async_store.aclose()
        store.close()

    asyncio.run(main())


def test_what_is_told_lives_on_the_clock_of_the_server_and_has_a_ttl(server: RedisServer) -> None:
    store = RedisStore(server.url)
    for origin, ttl in (("a", 60), ("b", 30)):
        store.run(PublishValue("4=shop=!pressure", "factor", origin, 0.5, 1, ttl * SECOND))
    (name,) = server.cli("keys", "*").split()
    assert name == "shop=%21pressure,:factor"
    assert parse_name(name.encode()) is None, "it is no counter"
    assert 50_000 < int(server.cli("pttl", name)) <= 62_000
    store.run(PublishValue("4=shop=!pressure", "factor", "a", 0.5, 1, SECOND))
    assert 20_000 < int(server.cli("pttl", name)) <= 32_000
    store.close()


def test_what_has_lapsed_is_thrown_away_and_there_is_never_too_much(server: RedisServer) -> None:
    clock = ManualClock(1_700_000_000)
    store = RedisStore(server.url, clock=clock)
    for n in range(MOST_PUBLISHERS + 10):
        store.run(PublishValue("4=shop=!pressure", "factor", f"origin {n}", 0.5, 1, SECOND))
    name = server.cli("keys", "*")
    assert server.cli("hlen", name) == str(MOST_PUBLISHERS)
    clock.advance(1)
    store.run(PublishValue("4=shop=!pressure", "factor", "new", 0.5, 1, HOUR))
    assert server.cli("hgetall", name).splitlines()[0] == "new"
    assert server.cli("hlen", name) == "1"
    store.close()


def test_it_is_told_through_sentinels_too() -> None:
    async def ask(url: str, share: PublishValue) -> int:
        store = RedisStore(url)
        told = await store.arun(share)
        await store.aclose()
        return len(told)

    with SentinelSetup() as servers:
        url = with_options(servers.url, timeout=5)
        store = RedisStore(url)
        for n in range(8):
            share = PublishValue(f"group {n}", f"key {n}", "a", 0.5, 1, HOUR)
            assert store.run(share) == (("a", 0.5, 1.0),)
        assert asyncio.run(ask(url, PublishValue("group 1", "key 1", "b", 1, 1, HOUR))) == 2
        store.close()
