"""A server that is down, slow, full or refusing is a failing store: never a denial.

Whatever happens, a hit is charged at most once, the error says why within the deadline, and the
same limiter goes on when the server does.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from headgate.errors import STORE_FAULTS
from tests.support.limiters import KINDS, limiting
from tests.support.servers import (
    RedisServer,
    ServerError,
    User,
    free_port,
    is_installed,
    release_port,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.decision import FailurePolicy

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers"),
    pytest.mark.parametrize("kind", KINDS),
]

PASSWORD = secrets.token_hex(8)
POLICIES: tuple[FailurePolicy, ...] = ("fail_open", "fail_closed")
SHORT = 1.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(config=["enable-debug-command yes"]) as server:
        yield server


def assert_decides_by_policy(kind: str, url: str, *reasons: str, timeout: float = SHORT) -> None:
    """Check that the store at *url* fails for one of *reasons*, and that a limiter says so."""
    for policy in POLICIES:
        with limiting(kind, url, timeout=timeout, policy=policy) as one:
            reason = one.reason()
            assert reason in reasons
            assert reason in STORE_FAULTS
            for _ in range(3):
                decision = one.hit()
                assert decision.source == policy
                assert decision.allowed is (policy == "fail_open")


class TestLostScripts:
    def test_flushed_scripts_are_loaded_again_and_charge_once(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            for _ in range(3):
                assert one.hit().source == "store"
                server.cli("script", "flush")
            assert one.hit().source == "store"
            assert one.used() == 4

    def test_scripts_flushed_in_the_middle_of_traffic_lose_no_check(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            with one.hammering(callers=10) as seen:
                for _ in range(20):
                    server.cli("script", "flush")
                    seen.wait_for_more("store", count=5)
            assert seen.sources == {"store"}
            assert one.used() == min(seen.admitted, 1_000)

    def test_every_verb_survives_the_loss_of_its_script(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            driven = one.driven
            server.cli("script", "flush")
            reservation = driven.reserve("key", 5)
            assert reservation.allowed
            server.cli("script", "flush")
            assert reservation.commit(3)
            server.cli("script", "flush")
            assert driven.charge("key", 4).source == "store"
            server.cli("script", "flush")
            assert driven.refund("key", 2).source == "store"
            server.cli("script", "flush")
            assert [one.source for one in driven.hit_many(["key", "other"])] == ["store"] * 2
            server.cli("script", "flush")
            assert one.used() == 6
            server.cli("script", "flush")
            driven.reset("key")
            assert one.used() == 0


class TestOutages:
    def test_a_restarted_server_that_kept_its_data_goes_on_counting(self, kind: str) -> None:
        lasting = RedisServer(config=["appendonly yes", "appendfsync always"])
        with lasting as server, limiting(kind, server.url) as one:
            assert one.hit().allowed
            server.kill()
            assert one.reason() == "unreachable"
            server.restart()
            one.wait_until_decided()
            assert one.hit().source == "store"
            assert one.used() == 2

    def test_a_restarted_server_that_lost_its_data_counts_from_nothing(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            assert one.hit(cost=5).allowed
            server.restart()
            one.wait_until_decided()
            assert one.hit().source == "store"
            assert one.used() == 1

    def test_a_restart_between_two_hits_may_fail_one_but_charges_no_hit_twice(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            for _ in range(3):
                assert one.hit().source == "store"
                server.restart()
                wait_until(lambda: one.hit().source == "store", "the store decides")
                assert one.used() == 1

    def test_flushed_data_are_counted_from_nothing(self, kind: str, server: RedisServer) -> None:
        with limiting(kind, server.url) as one:
            assert one.hit(cost=5).allowed
            server.cli("flushall")
            assert one.hit().source == "store"
            assert one.used() == 1

    def test_a_hung_server_is_a_timeout_and_charges_at_most_once(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url, timeout=SHORT) as one:
            assert one.hit().allowed
            server.pause()
            assert one.reason() == "timeout"
            assert one.hit().source == "fail_closed"
            server.resume()
            one.wait_until_decided()
            assert one.used() <= 3

    def test_a_server_that_hangs_from_the_beginning_is_a_timeout(
        self, kind: str, server: RedisServer
    ) -> None:
        server.pause()
        assert_decides_by_policy(kind, server.url, "timeout", timeout=0.05)
        with limiting(kind, server.url, timeout=SHORT) as one:
            assert one.reason() == "timeout"
            server.resume()
            one.wait_until_decided()

    def test_nobody_listening_is_unreachable(self, kind: str) -> None:
        port = free_port()
        assert_decides_by_policy(kind, f"redis://127.0.0.1:{port}/0", "unreachable")
        release_port(port)

    def test_a_killed_server_is_unreachable_until_it_is_back(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url) as one:
            assert one.hit().allowed
            server.kill()
            for _ in range(3):
                assert one.reason() == "unreachable"
                assert one.hit().source == "fail_closed"
            server.restart()
            one.wait_until_decided()
            assert one.hit().allowed


class TestErrorsOfTheServer:
    def test_a_full_server_is_out_of_memory(self, kind: str, server: RedisServer) -> None:
        with limiting(kind, server.url) as one:
            assert one.hit().allowed
            server.cli("config", "set", "maxmemory", "1", "maxmemory-policy", "noeviction")
            assert one.reason() == "out_of_memory"
            assert_decides_by_policy(kind, server.url, "out_of_memory")
            server.cli("config", "set", "maxmemory", "0")
            assert one.hit().source == "store"
            assert one.used() == 2

    def test_a_replica_is_readonly(self, kind: str, server: RedisServer) -> None:
        nobody = free_port()
        with limiting(kind, server.url) as one:
            assert one.hit().allowed
            server.cli("replicaof", "127.0.0.1", str(nobody))
            assert one.reason() == "readonly"
            assert_decides_by_policy(kind, server.url, "readonly")
            server.cli("replicaof", "no", "one")
            one.wait_until_decided()
            assert one.hit().source == "store"
            assert one.used() == 2
        release_port(nobody)

    def test_a_loading_server_says_so_until_it_has_loaded(
        self, kind: str, server: RedisServer
    ) -> None:
        with limiting(kind, server.url, timeout=SHORT) as one:
            assert one.hit().allowed
            with loading(server):
                wait_until(lambda: one.reason("other") == "loading", "the store is loading")
                assert_decides_by_policy(kind, server.url, "loading", "timeout")
            one.wait_until_decided()
            assert one.hit().source == "store"
            assert one.used() == 2

    def test_an_endless_script_makes_the_server_busy(self, kind: str, server: RedisServer) -> None:
        server.cli("config", "set", "lua-time-limit", "10")
        with limiting(kind, server.url, timeout=SHORT) as one:
            assert one.hit().allowed
            with busy(server):
                wait_until(lambda: one.reason("other") == "busy", "the store is busy")
                assert_decides_by_policy(kind, server.url, "busy")
            one.wait_until_decided()
            assert one.hit().source == "store"
            assert one.used() == 2

    @pytest.mark.parametrize("given", ["", ":wrong@", "nobody:wrong@"])
    def test_a_wrong_password_is_denied_until_it_is_right(self, kind: str, given: str) -> None:
        with RedisServer(password=PASSWORD) as server:
            url = f"redis://{given}{server.address}/0"
            assert_decides_by_policy(kind, url, "denied")
            with limiting(kind, url) as one:
                assert one.reason() == "denied"
                if given == ":wrong@":
                    server.cli("config", "set", "requirepass", "wrong")
                    one.wait_until_decided()

    @pytest.mark.parametrize("rules", ["~* +@all -@scripting", "~other:* +@all"])
    def test_a_user_without_the_right_is_denied_until_it_has_it(
        self, kind: str, rules: str
    ) -> None:
        with RedisServer(user=User("limiter", PASSWORD, rules)) as server:
            assert_decides_by_policy(kind, server.url, "denied")
            with limiting(kind, server.url) as one:
                assert one.reason() == "denied"
                server.cli("acl", "setuser", "limiter", "~*", "+@all")
                one.wait_until_decided()
                assert one.hit().source == "store"
                assert one.used() == 1

    def test_a_server_that_cannot_save_refuses(self, kind: str, server: RedisServer) -> None:
        with limiting(kind, server.url) as one:
            assert one.hit().allowed
            server.cli("config", "set", "min-replicas-to-write", "1")
            assert one.reason() == "refused"
            assert one.hit().source == "fail_closed"
            server.cli("config", "set", "min-replicas-to-write", "0")
            assert one.hit().source == "store"
            assert one.used() == 2


@contextmanager
def loading(server: RedisServer) -> Iterator[None]:
    """Have *server* read its data again, slowly, until the block ends."""
    server.cli("debug", "populate", "20000")
    server.cli("config", "set", "loading-process-events-interval-bytes", "1024")
    server.cli("config", "set", "key-load-delay", "1000")
    with in_background(server, "debug", "reload"):
        try:
            yield
        finally:
            server.cli("config", "set", "key-load-delay", "0")


@contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """Have *server* run a script that does not end before the block does."""
    with in_background(server, "eval", "while true do end", "0"):
        try:
            yield
        finally:
            server.cli("script", "kill")


@contextmanager
def in_background(server: RedisServer, *command: str) -> Iterator[None]:
    """Send *command* and go on; its answer, if only an error, has come when the block is left."""

    def send() -> None:
        with suppress(ServerError):
            server.cli(*command, within=60.0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
