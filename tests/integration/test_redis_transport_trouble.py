"""The transport under the Redis store when servers fail, owners close and threads share."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.stores.redis.async_transport import AsyncTransport
from headgate.stores.redis.transport import Transport
from headgate.stores.redis.url import parse_redis_url
from tests.support.redis_transport import KINDS, LoopDriver, Script, drive, reason
from tests.support.servers import (
    RedisServer,
    ServerError,
    SilentProxy,
    is_installed,
    wait_until,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def is_busy(outcome: Any) -> bool:
    return isinstance(outcome, StoreError) and outcome.reason == "busy"


class TestTrouble:
    def test_a_dead_port_fails_at_once_and_is_left_alone_for_a_while(self, kind: str) -> None:
        with socket.socket() as taken:  # and nobody listens
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            with drive(kind, f"redis://127.0.0.1:{port}", timeout=30) as driver:
                errors = [driver.ask("key") for _ in range(50)]
        assert {reason(error) for error in errors} == {"unreachable"}
        assert f"127.0.0.1:{port}" in str(errors[0])
        assert any("the next attempt is in" in str(error) for error in errors)

    def test_a_hung_server_fails_within_the_deadline_and_runs_each_request_once(
        self, server: RedisServer, kind: str
    ) -> None:
        with drive(kind, server.url, timeout=1) as driver:
            driver.ask("key")
            before = server.calls("evalsha")
            server.pause()
            begin = time.monotonic()
            try:
                outcomes = driver.ask_all("key", "key")
                assert time.monotonic() - begin < 60
                assert [reason(one) for one in outcomes] == ["timeout", "timeout"]
                assert reason(driver.ask("key")) == "timeout"  # it does not greet us either
            finally:
                server.resume()
            wait_until(lambda: isinstance(driver.ask("key"), int), "the server is back")
            assert server.calls("evalsha") == before + 3

    def test_lost_replies_are_not_asked_for_again_nor_taken_for_others(
        self, server: RedisServer, kind: str
    ) -> None:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy, drive(kind, proxy.url, timeout=1.5) as driver:
            assert driver.ask("first") == 1
            proxy.swallow_replies()
            assert [reason(one) for one in driver.ask_all("key", "key")] == ["timeout"] * 2
            proxy.heal()
            assert len(proxy.commands("EVALSHA")) == 3
            wait_until(lambda: driver.ask("other") == 1, "it works again")
            assert server.cli("get", "key") == "2"

    def test_a_late_reply_is_nobodys(self, server: RedisServer, kind: str) -> None:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy, drive(kind, proxy.url, timeout=1.5) as driver:
            driver.ask("warm")
            proxy.delay_replies(ms=3000)
            assert reason(driver.ask("key")) == "timeout"
            proxy.heal()
            answers = [driver.ask("other") for _ in range(20)]
            assert [one for one in answers if isinstance(one, int)] == list(range(1, 21))

    def test_a_connection_that_breaks_fails_what_was_written_on_it(
        self, server: RedisServer, kind: str
    ) -> None:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy, drive(kind, proxy.url, timeout=20) as driver:
            driver.ask("warm")
            proxy.swallow_replies()
            before = len(proxy.commands("EVALSHA"))

            def cut_after_the_writes() -> None:
                wait_until(lambda: len(proxy.commands("EVALSHA")) == before + 2, "both are written")
                proxy.cut_connections()

            cut = threading.Thread(target=cut_after_the_writes)
            cut.start()
            outcomes = driver.ask_all("key", "key")
            cut.join()
            assert [reason(one) for one in outcomes] == ["unreachable"] * 2
            proxy.heal()
            assert driver.ask("key") == 3

    def test_an_idle_connection_that_the_server_closed_is_replaced_in_silence(
        self, server: RedisServer, kind: str
    ) -> None:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy, drive(kind, proxy.url) as driver:
            assert driver.ask("key") == 1
            proxy.cut_connections()
            wait_until(lambda: proxy.open_now == 0, "the connection is cut")
            time.sleep(0.1)
            assert driver.ask("key") == 2

    def test_a_restarted_server_is_found_again_without_a_storm(self, kind: str) -> None:
        with (
            RedisServer() as server,
            SilentProxy(server.port) as proxy,
            drive(kind, proxy.url) as driver,
        ):
            assert driver.ask("key") == 1
            server.kill()
            outcomes = [driver.ask("key") for _ in range(200)]
            assert {reason(one) for one in outcomes} <= {"unreachable", "timeout"}
            assert proxy.opened < 20
            server.restart()
            wait_until(lambda: driver.ask("key") == 1, "it heals")
            assert proxy.opened < 30

    def test_many_at_once_open_one_connection_or_as_many_as_allowed(
        self, server: RedisServer, kind: str
    ) -> None:
        with SilentProxy(server.port) as proxy, drive(kind, proxy.url, timeout=5) as driver:
            assert all(isinstance(one, int) for one in driver.ask_all(*["key"] * 100))
            assert proxy.opened == 1

    def test_a_replica_is_an_error_and_is_not_asked_again_on_that_connection(
        self, server: RedisServer, kind: str
    ) -> None:
        with RedisServer() as other, drive(kind, other.url) as driver:
            assert driver.ask("key") == 1
            other.cli("replicaof", "127.0.0.1", "1")
            assert reason(driver.ask("key")) == "readonly"
            other.cli("replicaof", "no", "one")
            assert driver.ask("key") == 2

    def test_a_full_server_is_out_of_memory(self, kind: str) -> None:
        full = RedisServer(config=["maxmemory 1", "maxmemory-policy noeviction"])
        with full, drive(kind, full.url) as driver:
            assert reason(driver.ask("key")) == "out_of_memory"

    def test_a_script_that_does_not_end_makes_the_server_busy(self, kind: str) -> None:
        config = ["busy-reply-threshold 50", "lua-time-limit 50"]
        with RedisServer(config=config) as server, drive(kind, server.url, timeout=5) as driver:
            driver.ask("key")
            loop = threading.Thread(target=_run_forever, args=(server,))
            loop.start()
            wait_until(lambda: is_busy(driver.ask("key")), "it is busy")
            server.cli("script", "kill")
            loop.join()
            assert isinstance(driver.ask("key"), int)


def _run_forever(server: RedisServer) -> None:
    with suppress(ServerError):  # it is killed
        server.cli("eval", "while true do end", "0", within=20)
        raise AssertionError


class TestClosing:
    def test_requests_after_the_end_fail_as_closed(self, server: RedisServer, kind: str) -> None:
        driver = drive(kind, server.url)
        driver.ask("key")
        if isinstance(driver, LoopDriver):
            driver.runner.run(driver.transport.aclose())
            assert reason(driver.ask("key")) == "closed"
            driver.runner.close()
        else:
            driver.close()
            assert reason(driver.ask("key")) == "closed"

    def test_what_is_on_its_way_fails_as_closed(self, server: RedisServer) -> None:
        async def main(url: str) -> list[Any]:
            transport = AsyncTransport(parse_redis_url(url))
            requests = [Script("key") for _ in range(2)]
            for request in requests:
                request.done = asyncio.Event()
            await asyncio.sleep(0)
            transport.submit(requests[0])
            await asyncio.sleep(0.05)
            transport.submit(requests[1])
            await transport.aclose()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return [reason(one.outcome) for one in requests]

        with SilentProxy(server.port) as proxy:
            proxy.swallow_replies()
            found = asyncio.run(main(with_options(proxy.url, timeout=20)))
            assert found == ["closed", "closed"]

    def test_a_thread_that_waits_is_told(self, server: RedisServer) -> None:
        with SilentProxy(server.port) as proxy:
            transport = Transport(parse_redis_url(with_options(proxy.url, timeout=20)))
            transport.perform([Script("key")])
            proxy.swallow_replies()
            request = Script("key")
            thread = threading.Thread(target=transport.perform, args=([request],))
            thread.start()
            wait_until(lambda: len(proxy.commands("EVALSHA")) == 2, "it is on its way")
            transport.close()
            thread.join()
            assert reason(request.outcome) == "closed"
            wait_until(lambda: proxy.open_now == 0, "nothing is left open")

    def test_opening_does_nothing_yet(self, kind: str) -> None:
        with drive(kind, "redis://192.0.2.1"):
            pass


class TestSharing:
    def test_threads_share_as_many_connections_as_allowed(self, server: RedisServer) -> None:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy:
            transport = Transport(
                parse_redis_url(with_options(proxy.url, connections=3, timeout=20))
            )
            requests = [[Script("key") for _ in range(50)] for _ in range(8)]

            def work(mine: list[Script]) -> None:
                for request in mine:
                    transport.perform([request])

            threads = [threading.Thread(target=work, args=(mine,)) for mine in requests]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            transport.close()
            assert sorted(one.outcome for mine in requests for one in mine) == list(range(1, 401))
            assert proxy.opened <= 3

    def test_who_finds_all_connections_in_use_waits_until_the_deadline(
        self, server: RedisServer
    ) -> None:
        with SilentProxy(server.port) as proxy:
            transport = Transport(
                parse_redis_url(with_options(proxy.url, connections=1, timeout=1))
            )
            transport.perform([Script("key")])
            proxy.swallow_replies()
            first, second = Script("key"), Script("key")
            thread = threading.Thread(target=transport.perform, args=([first],))
            thread.start()
            wait_until(lambda: len(proxy.commands("EVALSHA")) == 2, "the first is on its way")
            transport.perform([second])
            thread.join()
            transport.close()
            assert reason(first.outcome) == reason(second.outcome) == "timeout"
            assert len(proxy.commands("EVALSHA")) == 2

    def test_a_forked_child_opens_its_own_connection(self, server: RedisServer) -> None:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy:
            transport = Transport(parse_redis_url(proxy.url))
            transport.perform([Script("parent")])
            child = os.fork()
            if child == 0:
                request = Script("child")
                with suppress(BaseException):
                    transport.perform([request])
                os._exit(0 if request.outcome == 1 else 1)
            assert os.waitpid(child, 0)[1] == 0
            request = Script("parent")
            transport.perform([request])
            transport.close()
            assert request.outcome == 2
            assert proxy.opened == 2

    def test_each_event_loop_has_a_connection_of_its_own(self, server: RedisServer) -> None:
        server.cli("flushall")
        transport = AsyncTransport(parse_redis_url(server.url))
        outcomes: list[Any] = []

        async def ask() -> None:
            request = Script("key")
            request.done = asyncio.Event()
            transport.submit(request)
            await request.wait()
            outcomes.append(request.outcome)

        async def stay(started: threading.Event, stop: threading.Event) -> None:
            await ask()
            started.set()
            await asyncio.to_thread(stop.wait)

        async def main() -> None:
            await ask()
            await transport.aclose()

        started, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(stay(started, stop)))
        thread.start()
        started.wait(10)
        asyncio.run(main())
        stop.set()
        thread.join()
        assert sorted(outcomes) == [1, 2]

    def test_a_loop_takes_its_connections_along_when_it_is_closed(
        self, server: RedisServer
    ) -> None:
        server.cli("flushall")

        async def ask(transport: AsyncTransport) -> Any:
            request = Script("key")
            request.done = asyncio.Event()
            transport.submit(request)
            await request.wait()
            return request.outcome

        with SilentProxy(server.port) as proxy:
            transport = AsyncTransport(parse_redis_url(proxy.url))
            for number in (1, 2, 3):
                assert asyncio.run(ask(transport)) == number
                wait_until(lambda: proxy.open_now == 0, "the connection is closed")
            del transport
            gc.collect()  # an error of a warning if anything was left open
