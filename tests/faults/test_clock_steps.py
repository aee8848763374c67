"""Clocks of stores that step: no more is allowed than fits in the time that they went forward.

A node that leases counts on a clock of its own, which never steps, as `MonotonicClock` does not.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate import RateLimiter
from headgate.limits import EXACT, Accuracy, parse_limit
from headgate.stores import MemoryStore
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.redis import RedisStore
from headgate.units import MILLISECOND, MINUTE, SECOND
from tests.support.fleet_bounds import Allowed, excess
from tests.support.servers import RedisServer, is_installed
from tests.support.shm_stores import fresh_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.base import Store

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMITS = ("20/s burst 40", "40 per 3 s sliding_window_log")
BATCH = 4
STEPS_NS = (*[MILLISECOND] * 10, 100 * MILLISECOND, 2 * SECOND, -MILLISECOND, -SECOND, -MINUTE)


class SteppingClock:
    """A clock that steps forward and back; `forward_ns` is how far it went forward in all."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._now_ns = 1_000_000 * SECOND
        self.forward_ns = 0

    def __call__(self) -> int:
        return self._now_ns

    def step(self) -> None:
        """Step somewhere."""
        step_ns = self._chance.choice(STEPS_NS)
        self._now_ns += step_ns
        self.forward_ns += max(step_ns, 0)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", LIMITS)
@pytest.mark.parametrize("kind", ["memory", "shm", "redis", "leased"])
def test_a_clock_that_steps_mints_nothing(
    server: RedisServer, kind: str, text: str, seed: int
) -> None:
    clock, limit = SteppingClock(seed), parse_limit(text)
    with ExitStack() as ends:
        store: Store
        match kind:
            case "memory":
                store = MemoryStore(clock=clock)
            case "shm":
                store = ends.enter_context(fresh_store(clock))
            case "redis":
                store = RedisStore(server.url, clock=clock)
            case _:
                inner = RedisStore(server.url, clock=clock)
                store = LeasedStore(inner, clock=lambda: clock.forward_ns)
        is_leased = kind == "leased"
        limiter = RateLimiter(
            limit,
            store=store,
            name="api",
            namespace=token_hex(4),
            accuracy=Accuracy(batch=BATCH) if is_leased else EXACT,
            on_store_failure="fail_closed",
        )
        allowed: list[Allowed] = []
        for _ in range(800):
            clock.step()
            if limiter.hit("key"):
                allowed.append(Allowed(clock.forward_ns, clock.forward_ns))
        limiter.close()
    assert len(allowed) >= limit.quota
    assert excess(allowed, [limit], BATCH if is_leased else 0) <= 0
