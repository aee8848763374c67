"""The circuit breaker on real servers that are stopped, killed, cut off and started again.

Deadlines are short and nothing is timed: the tests see that a call without a reply returns.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.limits import TokenBucket
from headgate.stores.layers.circuit_breaker import BreakerOptions, CircuitBreakerStore
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.units import MILLISECOND, SECOND
from tests.support.faults.proxy import FaultyProxy
from tests.support.limiters import Loop
from tests.support.servers import ClusterSetup, RedisServer, wait_until, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMIT = TokenBucket(1_000_000, 0.001)
OPTIONS = BreakerOptions(
    first_pause_ns=20 * MILLISECOND, longest_pause_ns=100 * MILLISECOND, ramp_ns=50 * MILLISECOND
)
QUIET = BreakerOptions(first_pause_ns=3600 * SECOND, longest_pause_ns=3600 * SECOND)
"""Once open, it stays so for the test."""
SHORT = 0.1
KINDS = ["sync", "async"]


class Blocking:
    """A store for threads. Takes of one key are prepared."""

    def __init__(self, url: str, options: BreakerOptions) -> None:
        self.store = CircuitBreakerStore(RedisStore(url), options=options)
        self._prepared = self.store.prepare([("g", LIMIT)])

    def take(self, *keys: str) -> str:
        """Take one unit of each of *keys*: "ok", or the reason for which that fails."""
        try:
            if len(keys) == 1:
                self._prepared.take(keys, (1,))
            else:
                self.store.run(taking(keys))
        except StoreError as error:
            return error.reason
        return "ok"

    def close(self) -> None:
        self.store.close()


class InLoop:
    """The same in an event loop."""

    def __init__(self, url: str, options: BreakerOptions) -> None:
        self.store = CircuitBreakerStore(RedisStore(url), options=options)
        self._prepared = self.store.prepare([("g", LIMIT)])
        self._loop = Loop()

    def take(self, *keys: str) -> str:
        return self._loop.run(self._take(keys))

    async def _take(self, keys: Sequence[str]) -> str:
        try:
            if len(keys) == 1:
                answer = self._prepared.atake(keys, (1,))
                assert not isinstance(answer, tuple)
                await answer
            else:
                await self.store.arun(taking(keys))
        except StoreError as error:
            return error.reason
        return "ok"

    def close(self) -> None:
        self._loop.run(self.store.aclose())
        self._loop.close()


Subject = Blocking | InLoop


def taking(keys: Sequence[str]) -> Take:
    return Take(tuple(Check("g", key, LIMIT) for key in keys))


@contextmanager
def breaking(
    kind: str, url: str, *, options: BreakerOptions = OPTIONS, timeout: float = SHORT
) -> Iterator[Subject]:
    """A circuit breaker for callers of *kind* in front of the store at *url*."""
    url = with_options(url, timeout=timeout)
    one: Subject = Blocking(url, options) if kind == "sync" else InLoop(url, options)
    try:
        wait_until(lambda: one.take("key") == "ok", "the store answers at first")
        yield one
    finally:
        one.close()


def assert_recovers(one: Subject) -> None:
    """By the calls that come, and by nothing else."""

    def is_back() -> bool:
        return one.take("key") == "ok" and one.store.health.state == "closed"

    wait_until(is_back, "all calls go to the store again")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
class TestOutages:
    def test_a_stopped_server_opens_the_circuit_and_recovers(
        self, kind: str, server: RedisServer
    ) -> None:
        with breaking(kind, server.url) as one:
            server.pause()
            seen = Counter(one.take("key") for _ in range(200))
            server.resume()
            assert set(seen) == {"timeout", "circuit_open"}
            assert seen["circuit_open"] > 150
            assert_recovers(one)

    def test_a_killed_server_opens_the_circuit_and_recovers(
        self, kind: str, server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headgate.store")
        with breaking(kind, server.url) as one:
            server.kill()
            for _ in range(500):
                assert one.take("key") in ("unreachable", "circuit_open")
            server.restart()
            assert_recovers(one)
        lines = [record.getMessage() for record in caplog.records]
        assert f"store {server.address}: circuit open" in lines[0]
        assert "unreachable: " in lines[0]
        assert "circuit closed" in lines[-1]
        assert len(lines) < 50  # not one for each of the calls

    def test_a_restart_that_nobody_waits_for_opens_nothing(
        self, kind: str, server: RedisServer
    ) -> None:
        with breaking(kind, server.url, timeout=5) as one:
            server.restart()
            answers = [one.take("key") for _ in range(10)]
            assert answers[2:] == ["ok"] * 8
            assert one.store.health.state == "closed"

    def test_a_server_that_trickles_is_out_of_time(self, kind: str, server: RedisServer) -> None:
        with FaultyProxy(server.port) as proxy, breaking(kind, proxy.url, options=QUIET) as one:
            proxy.trickle("replies", piece=1, every_ms=60)
            seen = [one.take("key") for _ in range(6)]  # first the reply, then the greeting
            assert seen[:2] == ["timeout"] * 2
            assert seen[-1] == "circuit_open"

    def test_who_is_cut_off_does_not_hang(self, kind: str, server: RedisServer) -> None:
        with FaultyProxy(server.port) as proxy, breaking(kind, proxy.url) as one:
            proxy.partition()
            assert {one.take("key") for _ in range(20)} <= {"timeout", "circuit_open"}
            proxy.heal()
            assert_recovers(one)

    def test_nothing_is_sent_while_it_is_open(self, kind: str, server: RedisServer) -> None:
        with FaultyProxy(server.port) as proxy, breaking(kind, proxy.url, options=QUIET) as one:
            proxy.swallow_requests()
            wait_until(lambda: one.store.health.is_open or one.take("key") == "", "it is open")
            proxy.heal()
            proxy.forget()
            assert {one.take("key") for _ in range(100)} == {"circuit_open"}
            assert (proxy.requests, proxy.opened) == ([], 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_answers_no_connection_does_not_hang_a_call(kind: str) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        fill: list[Any] = []
        for _ in range(8):  # no room for one more: what comes next is not even refused
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            fill.append(one)
        url = f"redis://127.0.0.1:{address[1]}?timeout={SHORT}"
        subject: Subject = Blocking(url, QUIET) if kind == "sync" else InLoop(url, QUIET)
        seen = [subject.take("key") for _ in range(6)]
        subject.close()
        for one in fill:
            one.close()
    assert seen[0] == "timeout"
    assert seen[-1] == "circuit_open"


@pytest.mark.parametrize("kind", KINDS)
def test_a_hung_node_of_a_cluster_costs_its_own_keys_alone(
    kind: str, cluster: ClusterSetup
) -> None:
    keys = [f"key-{n}" for n in range(60)]
    options = replace(QUIET, failures=1)  # a healthy node answers within a second
    with breaking(kind, cluster.url, options=options, timeout=1) as one:
        for key in keys:
            wait_until(lambda key=key: one.take(key) == "ok", "every node answers")  # type: ignore[misc] # bound now
        hung = cluster.primaries()[0]
        hung.pause()
        try:
            found = [{key: one.take(key) for key in keys} for _ in range(2)][-1]
            lost = [key for key, reason in found.items() if reason != "ok"]
            assert {found[key] for key in lost} == {"circuit_open"}
            assert 0 < len(lost) < len(keys)
            fine = [key for key in keys if key not in lost]
            assert one.take(fine[0], fine[1]) == "ok"
            assert one.take(fine[0], lost[0]) == "circuit_open"
            states = {part: one_.state for part, one_ in one.store.health.breakers.items()}
            assert [part for part, state in states.items() if state == "open"] == [hung.address]
        finally:
            hung.resume()
