"""Slots in a real Redis: their holders are killed, or outlive their leases by a heartbeat."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate import Concurrency, RateLimiter
from tests.support.servers import RedisServer, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMIT = 2
TTL = 5.0
"""Seconds: long enough for a busy machine to renew a lease in time."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@contextmanager
def holder(url: str, partition: str, heartbeat: str) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).parents[1] / "support" / "slot_holder.py"
    call = [sys.executable, str(script), url, str(LIMIT), str(TTL), partition, heartbeat]
    with subprocess.Popen(  # noqa: S603
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def in_use(server: RedisServer) -> int:
    """How many leases have not run out, on the clock of the server."""
    seconds, micros = server.cli("time").split()
    return int(server.cli("zcount", "slots=api~:key", f"({seconds}{micros.zfill(6)}", "+inf"))


def test_slots_of_killed_holders_are_free_after_the_ttl_and_a_heartbeat_outlives_it(
    server: RedisServer,
) -> None:
    slots = Concurrency(LIMIT, TTL, (("gold", 1),))
    limiter = RateLimiter(
        slots, store=server.url, name="api", namespace="slots", on_store_failure="fail_closed"
    )
    with holder(server.url, "gold", "yes") as beating, holder(server.url, "", "no") as silent:
        assert in_use(server) == 2
        assert not limiter.slot("key").take()
        silent.kill()
        wait_until(lambda: in_use(server) == 1, "the slot of a killed holder is free")
        # The other's lease is older: without its heartbeat it would have run out before.
        slot = limiter.slot("key")
        assert slot.take().remaining == 0
        assert slot.release()
        beating.kill()
        wait_until(lambda: in_use(server) == 0, "the slot of a killed heart is free")
    limiter.close()


def test_a_held_slot_with_a_heartbeat_is_given_back_once(server: RedisServer) -> None:
    with holder(server.url, "gold", "yes") as process:
        assert in_use(server) == 1
        said, _ = process.communicate("")
        assert said == "held\n"
        assert in_use(server) == 0


def test_every_key_of_slots_lives_for_a_limited_time(server: RedisServer) -> None:
    slots = Concurrency(1, 30, (("gold", 1),))
    with RateLimiter(slots, store=server.url, name="api", namespace="ttl") as limiter:
        assert limiter.slot("key").take()
        assert not limiter.slot("key", "gold").take()
        names = sorted(server.cli("keys", "ttl*").split())
        assert names == ["ttl=api~:key", "ttl=api~|:key"]
        for name in names:
            assert 0 < int(server.cli("pttl", name)) <= 31_000 * 2, name
        limiter.reset("key")
        assert not server.cli("keys", "ttl*")


def test_a_full_limit_says_when_a_slot_is_likely_free(server: RedisServer) -> None:
    with RateLimiter(Concurrency(1, 60), store=server.url, name="estimate") as limiter:
        with limiter.slot("key"):
            denied = limiter.slot("key").take()
            assert (denied.retry_after, denied.is_estimate) == (1, True)
        with limiter.slot("key"):
            wait = limiter.slot("key").take().retry_after
            assert wait is not None
            assert 0.1 <= wait < 60, "the slot was held for moments, not for its lease"
