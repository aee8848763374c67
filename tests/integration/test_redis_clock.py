"""The clock of the store steps back: no caller is locked out, and nothing is minted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.operations import Charge, Check, Hold, Refund, Take
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from headgate.units import HOUR, MICROSECOND, MINUTE
from tests.support.servers import RedisServer, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMITS: list[Limit] = [
    TokenBucket(5, 5 / 60),
    GCRA(rate=7 / 60, burst=5),  # a unit takes no whole number of microseconds
    LeakyBucket(5, 5 / 60),
    FixedWindow(5, 60),
    SlidingWindowCounter(5, 60),
    SlidingWindowCounter(5, 60, subwindows=6),
    SlidingWindowLog(5, 60),
]
LONGEST = {"sliding_window_counter": 2 * MINUTE}
"""A window and a cell, which is as long if there is one."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def clock(server: RedisServer) -> ManualClock:
    server.cli("flushall")
    return ManualClock(1_800_000_000)


@pytest.fixture
def store(server: RedisServer, clock: ManualClock) -> Iterator[RedisStore]:
    store = RedisStore(server.url, clock=clock)
    yield store
    store.close()


def contents(server: RedisServer) -> dict[str, str]:
    """All that the server holds, by key."""
    script = "return redis.sha1hex(redis.call('DUMP', KEYS[1]))"
    return {key: server.cli("eval", script, "1", key) for key in server.cli("keys", "*").split()}


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_caller_at_its_limit_waits_a_minute_not_an_hour(
    store: RedisStore, clock: ManualClock, limit: Limit, is_prepared: bool
) -> None:
    prepared = store.prepare([("g", limit)])

    def hit() -> tuple[bool, int]:
        if is_prepared:
            (outcome,) = prepared.take(["key"], [1])
        else:
            (outcome,) = store.run(Take((Check("g", "key", limit),)))
        assert outcome.retry_after_ns is not None
        return outcome.allowed, outcome.retry_after_ns

    assert [hit()[0] for _ in range(6)] == [True] * 5 + [False]
    clock.advance_ns(-HOUR)
    allowed, wait_ns = hit()
    assert not allowed
    assert wait_ns <= LONGEST.get(limit.algorithm, MINUTE)
    clock.advance_ns(wait_ns - MICROSECOND)
    assert hit() == (False, MICROSECOND)
    clock.advance_ns(MICROSECOND)
    assert hit()[0]
    clock.advance_ns(HOUR)
    assert [hit()[0] for _ in range(6)] == [True] * 5 + [False]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_clock_that_jitters_mints_nothing(
    store: RedisStore, clock: ManualClock, limit: Limit
) -> None:
    prepared = store.prepare([("g", limit)])
    allowed = 0
    for step in (-MINUTE, MINUTE // 100, -HOUR, MINUTE // 100, -1_000 * HOUR, MINUTE // 100) * 3:
        allowed += sum(prepared.take(["key"], [1])[0].allowed for _ in range(10))
        clock.advance_ns(step)
    assert allowed == 5


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_debt_is_worked_off_as_long_as_before(
    store: RedisStore, clock: ManualClock, limit: Limit
) -> None:
    check = Check("g", "key", limit, 15)
    (before,) = store.run(Charge((check,)))
    clock.advance_ns(-HOUR)
    (after,) = store.run(Refund((Check("g", "key", limit, 0),)))
    assert before.retry_after_ns is not None
    assert after.retry_after_ns is not None
    assert after.retry_after_ns >= before.retry_after_ns - MINUTE
    assert after.retry_after_ns <= before.retry_after_ns + MINUTE


def test_a_reservation_lapses_after_its_own_time(store: RedisStore, clock: ManualClock) -> None:
    check = Check("g", "key", TokenBucket(5, 5 / 60), 5)
    store.run(Hold((check,), "mine", MINUTE))
    clock.advance_ns(-HOUR)
    (denied,) = store.run(Take((check,)))
    assert (denied.allowed, denied.retry_after_ns) == (False, MINUTE)
    clock.advance_ns(MINUTE)
    (allowed,) = store.run(Take((check,)))
    assert allowed.allowed


def test_a_lease_of_a_slot_ends_after_its_own_ttl(store: RedisStore, clock: ManualClock) -> None:
    limit = Concurrency(1, ttl=60, shares=(("a", 1),), partition="a")
    check = Check("g", "key", limit)
    store.run(Take((check,), lease="first"))
    clock.advance_ns(-HOUR)
    (denied,) = store.run(Take((check,), lease="second"))
    assert (denied.allowed, denied.retry_after_ns) == (False, MINUTE)
    clock.advance_ns(MINUTE // 2)
    (denied,) = store.run(Take((check,), lease="second"))
    assert (denied.allowed, denied.retry_after_ns) == (False, MINUTE // 2)
    clock.advance_ns(MINUTE // 2)
    (allowed,) = store.run(Take((check,), lease="second"))
    assert allowed.allowed


def test_a_queue_is_no_longer_than_it_can_be(store: RedisStore, clock: ManualClock) -> None:
    check = Check("g", "key", LeakyQueue(rate=1, queue=5))
    for _ in range(10):
        store.run(Take((check,)))
    clock.advance_ns(-HOUR)
    (denied,) = store.run(Take((check,)))
    assert denied.retry_after_ns is not None
    assert denied.retry_after_ns <= MINUTE / 10
    clock.advance_ns(denied.retry_after_ns)
    (allowed,) = store.run(Take((check,)))
    assert allowed.allowed


@pytest.mark.parametrize("limit", [*LIMITS, LeakyQueue(rate=1, queue=5)], ids=str)
@pytest.mark.parametrize("step", [0, MINUTE // 2, -HOUR])
def test_a_peek_writes_nothing(
    server: RedisServer, store: RedisStore, clock: ManualClock, limit: Limit, step: int
) -> None:
    check = Check("g", "key", limit)
    for _ in range(4):
        store.run(Take((check,)))
    clock.advance_ns(step)
    before = contents(server)
    store.run(Take((check,), consume=False))
    assert contents(server) == before
    assert before


def test_a_peek_forgets_no_event_that_counts_when_the_clock_steps_back(
    store: RedisStore, clock: ManualClock
) -> None:
    check = Check("g", "key", SlidingWindowLog(1, 60))
    store.run(Take((check,)))
    clock.advance_ns(65 * MINUTE // 60)
    store.run(Take((check,), consume=False))
    clock.advance_ns(-35 * MINUTE // 60)
    (outcome,) = store.run(Take((check,)))
    assert not outcome.allowed
