"""What is left in Redis goes away by itself, and is counted on Redis's own clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from headgate import GCRA, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog
from headgate.limits import Concurrency, LeakyQueue, TokenBucket, parse_limit
from headgate.stores.operations import Check, Hold, Take
from headgate.units import SECOND
from tests.support.limiters import KINDS, limiting
from tests.support.servers import RedisServer, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headgate.limits import Limit
    from tests.support.limiters import Limiting

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers"),
    pytest.mark.parametrize("kind", KINDS),
]

PERIOD = 20
SLACK_MS = 5_000
LIMITS: tuple[Limit, ...] = (
    TokenBucket(10, 10 / PERIOD),
    GCRA(rate=10 / PERIOD, burst=10),
    LeakyBucket(10, 10 / PERIOD),
    FixedWindow(10, PERIOD),
    SlidingWindowLog(10, PERIOD),
    SlidingWindowCounter(10, PERIOD),
    SlidingWindowCounter(10, PERIOD, subwindows=5),
    LeakyQueue(rate=10 / PERIOD, queue=9),
)
ALL_TTLS = """
local found = {}
for _, key in ipairs(redis.call('keys', '*')) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('pttl', key)
end
return found
"""
VERBS: Mapping[str, Callable[[Limiting], object]] = {
    "hit": lambda one: one.hit(),
    "hit_more": lambda one: [one.hit(cost=4) for _ in range(5)],
    "peek": lambda one: one.driven.peek("key"),
    "hit_many": lambda one: one.driven.hit_many([("key", 3), ("other", 2), ("key", 3)]),
    "charge": lambda one: one.driven.charge("key", 3),
    "refund": lambda one: (one.hit(cost=5), one.driven.refund("key", 2)),
    "reserve": lambda one: one.driven.reserve("key", 3, ttl=PERIOD),
    "commit": lambda one: one.driven.reserve("key", 3, ttl=PERIOD).commit(2),
    "cancel": lambda one: one.driven.reserve("key", 3, ttl=PERIOD).cancel(),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def ttls(server: RedisServer) -> dict[str, int]:
    """The milliseconds that each key has to live; -1 for one that lives for ever."""
    lines = server.cli("eval", ALL_TTLS, "0").splitlines()
    return {key: int(ttl) for key, ttl in zip(lines[::2], lines[1::2], strict=True)}


class TestTimeToLive:
    @pytest.mark.parametrize("verb", VERBS)
    def test_every_key_lives_at_most_twice_the_time_until_it_is_as_new(
        self, kind: str, verb: str, server: RedisServer
    ) -> None:
        for limit in LIMITS:
            server.cli("flushall")
            with limiting(kind, server.url, limit) as one:
                VERBS[verb](one)
                for key, ttl in ttls(server).items():
                    assert 0 < ttl <= 2_000 * PERIOD + SLACK_MS, (limit, key)

    def test_debt_lives_until_it_is_worked_off(self, kind: str, server: RedisServer) -> None:
        for limit in LIMITS:
            server.cli("flushall")
            with limiting(kind, server.url, limit) as one:
                one.driven.charge("key", 30)
                reset_ms = one.driven.peek("key", 0).reset_after * 1_000
                found = ttls(server)
                assert found
                for key, ttl in found.items():
                    assert reset_ms - 100 <= ttl <= 2 * reset_ms + SLACK_MS, (limit, key)

    @pytest.mark.parametrize("ttl", [2, PERIOD, 10 * PERIOD])
    def test_a_hold_that_charges_lives_until_its_charge_is_as_new(
        self, kind: str, ttl: int, server: RedisServer
    ) -> None:
        for limit in LIMITS[:-1]:  # a queue has its place at once
            server.cli("flushall")
            check = Check("@g", "key", limit, 1)
            with limiting(kind, server.url, limit) as one:
                held = one.run(Hold((check.with_cost(6),), "a", ttl * SECOND, charges_expired=True))
                assert held[0].allowed
                reset_ms = one.run(Take((check,), consume=False))[0].reset_after_ns // 1_000_000
                (found,) = ttls(server).values()
                assert reset_ms - 100 <= found <= 2 * reset_ms + SLACK_MS, limit

    def test_a_slot_lives_at_most_twice_its_lease(self, kind: str, server: RedisServer) -> None:
        server.cli("flushall")
        with limiting(kind, server.url, Concurrency(3, ttl=PERIOD)) as one:
            slot = one.driven.slot("key")
            assert slot.take()
            assert len(ttls(server)) == 1
            assert slot.renew()
            for ttl in ttls(server).values():
                assert 0 < ttl <= 2_000 * PERIOD + SLACK_MS
            assert slot.release()
            for ttl in ttls(server).values():
                assert 0 < ttl <= 2_000 * PERIOD + SLACK_MS

    def test_a_reset_leaves_nothing(self, kind: str, server: RedisServer) -> None:
        for limit in LIMITS:
            server.cli("flushall")
            with limiting(kind, server.url, limit) as one:
                one.hit()
                assert one.driven.reserve("key", 2).allowed
                one.driven.reset("key")
                assert ttls(server) == {}

    def test_keys_of_tiny_periods_vanish_by_themselves(
        self, kind: str, server: RedisServer
    ) -> None:
        server.cli("flushall")
        for text in ("1000/s burst 10", "10/10ms fixed_window", "10/10ms sliding_window_log"):
            with limiting(kind, server.url, parse_limit(text)) as one:
                one.hit()
        wait_until(lambda: ttls(server) == {}, "all keys are gone")

    @pytest.mark.parametrize("text", ["1000/s burst 10", "10000/s burst 3"])
    def test_tiny_periods_are_enforced(self, kind: str, text: str, server: RedisServer) -> None:
        limit = parse_limit(text)
        assert isinstance(limit, TokenBucket)
        with limiting(kind, server.url, limit) as one:
            one.driven.hit_many(["other"])
            begin = time.monotonic()
            decisions = one.driven.hit_many([("key", 1)] * 2_000)
            elapsed = time.monotonic() - begin
            assert {decision.source for decision in decisions} == {"store"}
            most = limit.capacity + float(limit.refill_rate) * elapsed + 1
            assert sum(decision.allowed for decision in decisions) <= most


class TestClock:
    @pytest.mark.parametrize("hours", [-1, 1])
    def test_a_client_whose_clock_is_off_counts_like_all_others(
        self, kind: str, hours: int, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read, read_ns = time.time, time.time_ns
        limit = SlidingWindowLog(5, 60)
        with limiting(kind, server.url, limit) as right:
            assert all(right.hit() for _ in range(4))
            monkeypatch.setattr(time, "time", lambda: read() + 3_600 * hours)
            monkeypatch.setattr(time, "time_ns", lambda: read_ns() + 3_600 * 10**9 * hours)
            with limiting(kind, server.url, limit, namespace=right.namespace) as wrong:
                assert wrong.hit().allowed
                refused = wrong.hit()
                assert not refused.allowed
                assert refused.source == "store"
                assert refused.retry_after is not None
                assert 0 < refused.retry_after <= 60
            monkeypatch.undo()
            assert not right.hit().allowed
            assert right.driven.peek("key", 0).remaining == 0
