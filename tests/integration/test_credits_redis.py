"""Burst credits on a real Redis: a stack of two, so what the memory store does, Redis does."""

from __future__ import annotations

from headgate import RateLimiter
from headgate.limits import parse_limits
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.servers import RedisServer


def test_a_full_rest_lasts_for_exactly_so_long_at_the_peak() -> None:
    clock = ManualClock(start=1_800_000_000)
    with RedisServer() as server:
        store = RedisStore(server.url, clock=clock)
        made = RateLimiter(parse_limits("10/s burst 1 peak 100/s for 3s"), store=store, name="api")
        passed = []
        for _ in range(400):
            passed.append(made.hit("a").allowed)
            clock.advance_ns(SECOND // 100)
        store.close()
    at = [number for number, is_in in enumerate(passed) if is_in]
    assert at == [*range(301), *range(310, 400, 10)]
