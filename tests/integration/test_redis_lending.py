"""Loans, pots and totals on a real server: on its clock, once, for a while, in few commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.limits import FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    MergeUsage,
    Operation,
    Refund,
    Reset,
    Take,
)
from headgate.stores.redis import RedisStore
from headgate.stores.redis.naming import parse_name
from headgate.testing import ManualClock
from headgate.units import HOUR, SECOND
from tests.support.lease_store import LeaseGrantingStore
from tests.support.servers import ClusterSetup, RedisServer, SilentProxy, is_installed
from tests.support.servers.urls import with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.limits import Limit

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

PERIOD = 20
LIMITS: tuple[Limit, ...] = (
    TokenBucket(10, 10 / PERIOD),
    TokenBucket(10, 10 / 3),
    FixedWindow(10, PERIOD),
    SlidingWindowLog(10, PERIOD),
    SlidingWindowCounter(10, PERIOD, subwindows=5),
)
MOST_HOLDERS = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    server.cli("flushall")
    store = RedisStore(server.url)
    yield store
    store.close()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[SilentProxy]:
    with SilentProxy(server.port) as proxy:
        yield proxy


def names(server: RedisServer) -> list[str]:
    return sorted(server.cli("keys", "*").split())


def calls(server: RedisServer, *names: str) -> int:
    return sum(server.calls(name) for name in names)


class TestTimeToLive:
    @pytest.mark.parametrize("limit", LIMITS, ids=str)
    def test_every_key_lives_for_a_while_and_not_for_ever(
        self, limit: Limit, server: RedisServer, store: RedisStore
    ) -> None:
        check = Check("g", "key", limit)
        for is_charged in (True, False):
            store.run(GrantLease(check, "a", 3, SECOND, used=1, is_charged=is_charged))
            store.run(GrantLease(check, "b", 1, SECOND, unused=1))
        store.run(MergeUsage((check,), "eu", 1, 30 * SECOND))
        found = {name: int(server.cli("pttl", name)) for name in names(server)}
        assert {"@g:key", "@g^:key", "@g<:key"} <= set(found)
        for name, ttl in found.items():
            assert 0 < ttl <= 2 * 60_000 + 5_000, name

    def test_a_ledger_of_a_long_loan_is_bounded(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        day = FixedWindow(10, 86_400)
        store.run(GrantLease(Check("g", "key", day), "a", 3, HOUR, used=1, is_charged=False))
        assert 0 < int(server.cli("pttl", "@g^:key")) <= 86_400_000 + 3_600_000 + 5_000

    def test_totals_live_as_long_as_the_longest_asked_for(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        check = Check("g", "key", LIMITS[0])
        store.run(MergeUsage((check,), "eu", 1, 300 * SECOND))
        store.run(MergeUsage((check,), "us", 1, SECOND))
        assert 290_000 < int(server.cli("pttl", "@g<:key")) <= 305_000

    @pytest.mark.parametrize("limit", LIMITS, ids=str)
    def test_a_reset_leaves_nothing_but_what_other_regions_told(
        self, limit: Limit, server: RedisServer, store: RedisStore
    ) -> None:
        check = Check("g", "key", limit)
        store.run(GrantLease(check, "a", 3, SECOND, used=1))
        store.run(MergeUsage((check,), "eu", 1, SECOND))
        store.run(Reset((check,)))
        assert names(server) == ["@g<:key"]

    def test_a_ledger_without_accounts_is_gone(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        check = Check("g", "key", LIMITS[0])
        store.run(GrantLease(check, "a", 3, SECOND))
        store.run(GrantLease(check, "a", 0, SECOND, unused=3))
        assert names(server) == ["@g:key"]


class TestCalls:
    def test_a_loan_is_one_call_of_a_few_commands(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        check = Check("g", "key", LIMITS[0])
        for n in range(20):
            store.run(GrantLease(check, f"n{n}", 0, SECOND, used=1, reported=1))
        before = server.info("commandstats"), calls(server, "hgetall")
        store.run(GrantLease(check, "n3", 0, SECOND, used=2, reported=1))
        assert calls(server, "hgetall") == before[1], "all holders were walked"
        evals = server.calls("evalsha")
        store.run(GrantLease(check, "n3", 0, SECOND))
        assert server.calls("evalsha") == evals + 1

    def test_a_server_that_has_forgotten_the_scripts_charges_once(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        check = Check("g", "key", TokenBucket(100, 0.001))
        for n in range(1, 4):
            server.cli("script", "flush")
            assert (
                store.run(GrantLease(check, "a", 4, SECOND, unused=4)).outcome.remaining == 100 - n
            )
            server.cli("script", "flush")
            (told,) = store.run(MergeUsage((Check("g", "other", check.limit, n),), "eu", 1, HOUR))
            assert told.remaining == 100 - n

    def test_a_loan_whose_reply_is_lost_is_not_asked_for_again(
        self, server: RedisServer, store: RedisStore, proxy: SilentProxy
    ) -> None:
        check = Check("g", "key", TokenBucket(100, 0.001))
        behind = RedisStore(with_options(proxy.url, timeout=1.5))
        assert behind.run(GrantLease(check, "a", 5, HOUR)).amount == 5
        proxy.swallow_replies()
        with pytest.raises(StoreError):
            behind.run(GrantLease(check, "a", 5, HOUR, used=2))
        proxy.heal()
        behind.close()
        again = store.run(GrantLease(check, "a", 0, HOUR, used=2))
        assert again.outcome.remaining == 100 - 5 - 1 - 2 - 1 - 5 - 1

    def test_a_holder_too_many_gets_no_loan_and_its_check_is_taken(self, store: RedisStore) -> None:
        check = Check("g", "key", FixedWindow(1_000_000, 86_400))
        for n in range(MOST_HOLDERS):
            assert store.run(GrantLease(check, f"n{n}", 1, HOUR)).amount == 1
        late = store.run(GrantLease(check, "late", 1, HOUR, used=3))
        assert (late.outcome.allowed, late.amount, late.holders) == (True, 0, MOST_HOLDERS)
        assert store.run(GrantLease(check, "n7", 1, HOUR, unused=1)).amount == 1
        store.run(GrantLease(check, "n7", 0, HOUR, unused=1))
        assert store.run(GrantLease(check, "late", 1, HOUR)).amount == 1

    def test_an_origin_too_many_is_not_charged(self, store: RedisStore) -> None:
        check = Check("g", "key", FixedWindow(1_000_000, 86_400))
        for n in range(MOST_HOLDERS):
            store.run(MergeUsage((check,), f"o{n}", 1, HOUR))
        (late,) = store.run(MergeUsage((check,), "late", 1, HOUR))
        assert late.remaining == 1_000_000 - MOST_HOLDERS


def test_what_stands_beside_counters_is_none(server: RedisServer, store: RedisStore) -> None:
    for key in ("key", "k" * 300):
        check = Check("8:headgate:0", key, LIMITS[0])
        store.run(GrantLease(check, "a", 3, SECOND, used=1))
        store.run(MergeUsage((check,), "eu", 1, SECOND))
    found = names(server)
    assert len(found) == 6
    assert sum(parse_name(name.encode()) is not None for name in found) == 2


def test_in_a_cluster_a_counter_and_what_stands_beside_it_share_a_slot() -> None:
    with ClusterSetup() as cluster:
        store = RedisStore(cluster.url)
        keys = [f"user:{n}" for n in range(40)]
        for key in keys:
            check = Check("g", key, LIMITS[0])
            assert store.run(GrantLease(check, "a", 3, HOUR, used=1)).amount == 3
        everything = tuple(Check("g", key, LIMITS[0], 2) for key in keys)
        first = store.run(MergeUsage(everything, "eu", 1, HOUR))
        again = store.run(MergeUsage(everything, "eu", 1, HOUR))
        assert [one.remaining for one in first] == [one.remaining for one in again]
        slots: dict[str, set[int]] = {}
        for node in cluster.primaries():
            for name in names(node):
                slots.setdefault(name.partition(":")[2], set()).add(cluster.slot_of(name))
        assert {len(found) for found in slots.values()} == {1}
        store.run(Reset(everything))
        left = [name for node in cluster.primaries() for name in names(node)]
        assert all(">" in name or "<" in name for name in left)
        store.close()


def test_a_long_log_that_has_lost_entries_tells_the_right_figures(server: RedisServer) -> None:
    limit, clock = SlidingWindowLog(200, 100), ManualClock(1_700_000_000)
    store, reference = RedisStore(server.url, clock=clock), LeaseGrantingStore(clock=clock)
    one, many = Check("long", "key", limit), Check("long", "key", limit, 170)
    for _ in range(100):
        for each in (store, reference):
            each.run(Take((one,)))
        clock.advance(0.75)
    for each in (store, reference):
        each.run(GrantLease(one, "a", 30, 90 * SECOND))
    clock.advance(50)
    operations: tuple[Operation[Any], ...] = (
        Charge((many,)),
        GrantLease(one, "a", 1, SECOND, unused=20),
        Refund((one,)),
        Charge((many,)),
        GrantLease(one, "b", 1, SECOND),
        Refund((many,)),
    )
    for operation in operations:
        said = [each.run(operation) for each in (store, reference)]
        assert said[0] == said[1], operation
    store.close()
