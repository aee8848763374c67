"""Shapers of several processes on one real server: one queue, and what a crash costs it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from headgate.overload import AsyncShaper, Shaper
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

PER_SECOND = 100
GAP_NS = 1_000_000_000 // PER_SECOND
RATE = f"{PER_SECOND}/s"

CALLERS = """
import asyncio, json, signal, sys
from headgate.observability import METRICS
from headgate.overload import AsyncShaper

async def main(url, count):
    async with AsyncShaper("100/s", queue=1000, store=url) as shaper:
        await shaper.peek("key")
        print("ready", flush=True)
        sys.stdin.readline()
        acquired = [asyncio.ensure_future(shaper.acquire("key")) for _ in range(count)]
        while METRICS.value("shaper_waiting") < count:
            await asyncio.sleep(0.002)
        print("queued", flush=True)
        said = await asyncio.gather(*acquired)
        print(json.dumps([one.place_ns for one in said]), flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
try:
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class Callers:
    """A process of its own whose callers queue up all at once when they are told to go."""

    def __init__(self, url: str, count: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (our own text)
            [sys.executable, "-c", CALLERS, url, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


@contextmanager
def callers(url: str, count: int, processes: int = 1) -> Iterator[list[Callers]]:
    """Processes that are ready to go."""
    started = [Callers(url, count) for _ in range(processes)]
    try:
        for process in started:
            assert process.hear() == "ready"
        yield started
    finally:
        for process in started:
            process.end()


def test_the_turns_of_three_processes_are_evenly_spaced_over_all_of_them() -> None:
    with RedisServer() as server, Shaper(RATE, queue=1000, store=server.url) as shaper:
        with callers(server.url, 12, processes=3) as fleet:
            shaper.book("key", 3 * PER_SECOND)  # three seconds in which all of them line up
            for process in fleet:
                process.go()
            for process in fleet:
                assert process.hear() == "queued"
            by_process = [json.loads(process.hear()) for process in fleet]
        turns = sorted(turn for told in by_process for turn in told)
        assert len(turns) == 36
        assert {after - before for before, after in pairwise(turns)} == {GAP_NS}
        assert all(told == sorted(told) for told in by_process), "in the order they came"


def test_a_process_that_is_killed_while_it_waits_costs_its_turns_and_no_more() -> None:
    with RedisServer() as server, Shaper(RATE, queue=10_000, store=server.url) as shaper:
        with callers(server.url, 10) as (process,):
            shaper.book("key", 500)
            before = shaper.book("key")
            process.go()
            assert process.hear() == "queued"
            process.send(signal.SIGKILL)
        after = shaper.book("key")
        assert after.decision.place_ns == before.decision.place_ns + (1 + 10) * GAP_NS


def test_a_process_that_is_interrupted_while_it_waits_gives_its_turns_up() -> None:
    with RedisServer() as server, Shaper(RATE, queue=10_000, store=server.url) as shaper:
        with callers(server.url, 10) as (process,):
            shaper.book("key", 500)
            before = shaper.book("key")
            process.go()
            assert process.hear() == "queued"
            process.send(signal.SIGINT)
            assert process.hear() == "interrupted"
        after = shaper.book("key")
        assert after.decision.place_ns == before.decision.place_ns + GAP_NS


def test_a_caller_that_is_cancelled_frees_its_turn_on_the_server() -> None:
    async def story(url: str) -> None:
        async with (
            AsyncShaper("1/m", queue=50, store=url) as shaper,
            AsyncShaper("1/m", queue=50, store=url) as other,
        ):
            await shaper.acquire("key")
            waiting = [asyncio.ensure_future(shaper.acquire("key")) for _ in range(3)]
            async with asyncio.timeout(30):
                while await other.depth("key") < 3:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
            kept = await other.book("key")
            for task in waiting:
                task.cancel()
            unsent = asyncio.ensure_future(other.acquire("key"))
            await asyncio.sleep(0)
            unsent.cancel()
            await asyncio.wait([*waiting, unsent])
        async with AsyncShaper("1/m", queue=50, store=url) as after:
            # The turns before the one that is kept are given to who asks next, and then the rest.
            turns = [await after.book("key") for _ in range(4)]
            delays = [one.delay for one in turns]
            assert delays == sorted(delays)
            assert delays[2] < kept.delay < delays[3] < kept.delay + 61

    with RedisServer() as server:
        asyncio.run(story(server.url))


def test_while_the_server_is_gone_this_process_goes_on_shaping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.runtime.fallback.FIRST_PAUSE", (0.0, 0.1))
    with RedisServer() as server, Shaper("1/m", queue=3, store=server.url) as shaper:
        assert shaper.book("key").decision.source == "store"
        server.kill()
        told = [shaper.book("key") for _ in range(6)]
        assert [bool(one) for one in told] == [True] * 4 + [False] * 2
        assert {one.decision.source for one in told[:4]} == {"fail_open"}
        for n, one in enumerate(told[:4]):
            assert 60 * n - 20 < one.delay <= 60 * n, "but for the time that this took"
        server.start()
        wait_until(lambda: shaper.peek("other").source == "store", "the server decides again")
        assert shaper.book("other").delay == 0
