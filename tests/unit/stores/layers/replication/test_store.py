"""The store of a region, in both drivers."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError, StoreError
from headgate.limits import Accuracy, TokenBucket
from headgate.observability import METRICS
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.layers.replication.usage import MOST_CHECKS, MOST_COUNTERS
from headgate.stores.operations import Check, GrantLease, MergeUsage, Refund, Take, TakeEach
from headgate.testing import ManualClock
from headgate.units import HOUR, MILLISECOND
from tests.support.lease_store import LeaseGrantingStore
from tests.support.region_fakes import Peer

if TYPE_CHECKING:
    from headgate.stores.base import Store
    from headgate.stores.operations import Operation
    from tests.support.store_calls import Calls

LIMIT = TokenBucket(10, 1)
PATIENCE = 30.0
GONE = StoreError("gone", reason="unreachable")


def regional(peers: dict[str, Store], *, every_ns: int = HOUR) -> ReplicatedStore:
    """A store that reports when the test says so, unless it has a period."""
    clock = ManualClock(1_000)
    local = LeaseGrantingStore(clock=clock)
    return ReplicatedStore(local, region="eu", peers=peers, every_ns=every_ns, clock=clock)


def check(key: str, cost: int = 1) -> Check:
    return Check("g", key, LIMIT, cost)


def taking(key: str, cost: int = 1) -> Take:
    return Take((check(key, cost),))


class TestUsage:
    def test_what_is_allowed_is_reported_and_what_is_denied_is_not(self, calls: Calls) -> None:
        peer = Peer()
        store = regional({"us": peer})
        calls.run(store, taking("a", 8))
        calls.run(store, taking("a", 8))
        calls.run(store, TakeEach((taking("b", 2), taking("b", 20))))
        calls.exchange(store)
        assert peer.totals == {"a": 8, "b": 2}

    def test_each_region_gets_its_own_reports(self, calls: Calls) -> None:
        here, gone = Peer(), Peer()
        gone.error = GONE
        store = regional({"us": here, "ap": gone})
        calls.run(store, taking("a", 3))
        calls.exchange(store)
        assert [here.totals, gone.totals] == [{"a": 3}, {}]
        gone.error = None
        calls.run(store, taking("a", 1))
        calls.exchange(store)
        assert [here.totals, gone.totals] == [{"a": 4}, {"a": 4}]
        assert len(gone.merged) == 1

    def test_prepared_takes_are_reported(self, calls: Calls) -> None:
        peer = Peer()
        store = regional({"us": peer})
        one, two = store.prepare([("g", LIMIT)]), store.prepare([("g", LIMIT), ("h", LIMIT)])
        allowed = [calls.take(one, "a", costs=(4,))[0].allowed for _ in range(3)]
        assert allowed == [True, True, False]
        calls.take(two, "b", "b", costs=(3, 2))
        calls.exchange(store)
        assert peer.totals == {"a": 8, "b": 5}

    def test_prepared_takes_of_a_store_that_waits_are_reported(self, calls: Calls) -> None:
        class Waiting(LeaseGrantingStore):
            waits = True

            async def arun(self, operation: Operation[Any]) -> Any:
                await asyncio.sleep(0)
                return self.run(operation)

            def prepare(self, places: Any) -> Any:
                return super(LeaseGrantingStore, self).prepare(places)

        peer = Peer()
        store = ReplicatedStore(Waiting(), region="eu", peers={"us": peer}, every_ns=HOUR)
        calls.take(store.prepare([("g", LIMIT)]), "a", costs=(4,))
        calls.exchange(store)
        assert peer.totals == {"a": 4}

    def test_what_is_refunded_before_a_report_is_not_reported(self, calls: Calls) -> None:
        peer = Peer()
        store = regional({"us": peer})
        calls.run(store, taking("a", 5))
        calls.run(store, Refund((check("a", 2),)))
        calls.exchange(store)
        assert peer.totals == {"a": 3}

    def test_a_refund_after_its_window_ended_is_not_left_with_the_peers(self, calls: Calls) -> None:
        """The window of `LIMIT` is 10 seconds long."""
        clock = ManualClock(1_000)
        here, there = LeaseGrantingStore(clock=clock), LeaseGrantingStore(clock=clock)
        store = ReplicatedStore(here, region="eu", peers={"us": there}, every_ns=HOUR, clock=clock)
        clock.advance(9)
        calls.run(store, taking("a", 8))
        clock.advance(1)
        calls.run(store, Refund((check("a", 8),)))
        calls.exchange(store)
        assert there.run(Take((check("a"),), consume=False))[0].remaining == 10

    def test_a_lease_is_reported_when_it_is_granted_and_not_again_when_it_is_renewed(
        self, calls: Calls
    ) -> None:
        peer = Peer()
        store = regional({"us": peer})
        grant = calls.run(store, GrantLease(check("a"), "node", most=4, ttl_ns=HOUR))
        assert grant.amount == 4
        calls.exchange(store)
        assert peer.totals == {"a": 5}
        grant = calls.run(store, GrantLease(check("a"), "node", most=4, ttl_ns=HOUR, unused=3))
        assert grant.amount == 4
        calls.exchange(store)
        assert peer.totals == {"a": 7}  # 1 + 1 of the first lease + 1 + the second

    def test_two_regions_count_together(self, calls: Calls) -> None:
        clock = ManualClock(1_000)
        eu, us = LeaseGrantingStore(clock=clock), LeaseGrantingStore(clock=clock)
        ours = ReplicatedStore(eu, region="eu", peers={"us": us}, every_ns=HOUR)
        theirs = ReplicatedStore(us, region="us", peers={"eu": eu}, every_ns=HOUR)
        calls.run(ours, taking("a", 6))
        calls.run(theirs, taking("a", 3))
        for store in (ours, theirs, ours):
            calls.exchange(store)
        for store in (ours, theirs):
            assert store.run(Take((check("a"),), consume=False))[0].remaining == 1

    def test_only_groups_that_are_shared_are_reported(self, calls: Calls) -> None:
        peer = Peer()
        store = ReplicatedStore(
            LeaseGrantingStore(), region="eu", peers={"us": peer}, groups=["other"], every_ns=HOUR
        )
        calls.run(store, taking("a"))
        store.share(["g"])
        calls.run(store, taking("b"))
        store.share(())
        calls.run(store, taking("c"))
        calls.exchange(store)
        assert peer.totals == {"b": 1}


class TestReports:
    def test_they_are_sent_in_the_background_and_again_when_there_is_more(
        self, calls: Calls
    ) -> None:
        peer = Peer()
        store = regional({"us": peer}, every_ns=MILLISECOND)
        for n in (1, 2):
            peer.has_merged.clear()
            calls.run(store, taking("a"))
            calls.wait_for(peer.has_merged)
            assert peer.totals == {"a": n}
        calls.close(store)

    def test_a_region_that_hangs_delays_no_decision_and_no_other_region(self, calls: Calls) -> None:
        hung, peer = Peer(), Peer()
        hung.release = threading.Event()
        store = regional({"us": hung, "ap": peer}, every_ns=MILLISECOND)
        calls.run(store, taking("a"))
        calls.wait_for(hung.was_called)
        for _ in range(3):
            peer.has_merged.clear()
            assert calls.run(store, taking("a"))[0].allowed
            calls.wait_for(peer.has_merged)
        assert hung.totals == {}
        hung.release.set()
        calls.close(store)
        assert hung.is_closed

    def test_a_region_that_was_gone_gets_them_when_it_is_back(self, calls: Calls) -> None:
        peer = Peer()
        store = regional({"us": peer})
        peer.error = GONE
        calls.run(store, taking("a", 2))
        calls.exchange(store)
        calls.run(store, taking("a", 3))
        peer.error = None
        calls.exchange(store)
        assert peer.totals == {"a": 5}

    def test_the_end_of_an_outage_of_a_region_is_logged_once(
        self, calls: Calls, caplog: pytest.LogCaptureFixture
    ) -> None:
        peer = Peer()
        store = regional({"us": peer})
        for peer.error in (GONE, None, None):
            calls.run(store, taking("a"))
            calls.exchange(store)
        lines = [one.getMessage() for one in caplog.records if one.name.endswith("replication")]
        assert len(lines) == 2
        assert "cannot report usage to us" in lines[0]
        assert "us can be reached again after 1 failed attempts" in lines[1]

    def test_a_region_that_was_gone_gets_them_without_further_requests(self, calls: Calls) -> None:
        peer = Peer()
        store = regional({"us": peer}, every_ns=MILLISECOND)
        peer.error = GONE
        calls.run(store, taking("a", 2))
        calls.wait_for(peer.has_failed)
        peer.error = None
        calls.wait_for(peer.has_merged)
        assert peer.totals == {"a": 2}
        calls.close(store)

    def test_a_region_that_is_gone_is_tried_with_one_report(self, calls: Calls) -> None:
        peer = Peer()
        peer.error = GONE
        store = regional({"us": peer})
        for n in range(2 * MOST_CHECKS + 1):
            calls.run(store, taking(f"k{n}"))
        calls.exchange(store)
        before = peer.attempts
        calls.exchange(store)
        assert peer.attempts == before + 1
        peer.error = None
        calls.exchange(store)
        assert len(peer.totals) == 2 * MOST_CHECKS + 1

    def test_several_are_in_flight_together_in_threads(self) -> None:
        """Each waits for the other two, or none of them would be answered."""

        class Slow(Peer):
            together = threading.Barrier(3, timeout=PATIENCE)

            def run(self, operation: Operation[Any]) -> Any:
                self.together.wait()
                return super().run(operation)

        peer = Slow()
        store = regional({"us": peer})
        for n in range(2 * MOST_CHECKS + 1):
            store.run(taking(f"k{n}"))
        store.exchange()
        assert len(peer.totals) == 2 * MOST_CHECKS + 1

    def test_several_are_in_flight_together_in_an_event_loop(self) -> None:
        async def scenario() -> None:
            peer = Peer(steps=100)
            store = regional({"us": peer})
            for n in range(2 * MOST_CHECKS + 1):
                await store.arun(taking(f"k{n}"))
            await store.aexchange()
            assert len(peer.merged) == peer.most_in_flight == 3
            assert len(peer.totals) == 2 * MOST_CHECKS + 1

        asyncio.run(scenario())

    def test_one_that_is_refused_does_not_hold_up_the_others(self, calls: Calls) -> None:
        class Picky(Peer):
            def run(self, operation: Operation[Any]) -> Any:
                if isinstance(operation, MergeUsage) and operation.checks[0].key == "a":
                    raise StoreError("unknown value", reason="refused")
                return super().run(operation)

        peer = Picky()
        store = regional({"us": peer})
        calls.run(store, taking("a"))
        calls.run(store, Take((Check("g", "b", TokenBucket(500, 1)),)))
        calls.exchange(store)
        assert peer.totals == {"b": 1}

    def test_one_event_loop_after_another_sends_them(self) -> None:
        peer = Peer()
        store = regional({"us": peer}, every_ns=MILLISECOND)

        async def scenario(n: int) -> None:
            peer.has_merged.clear()
            await store.arun(taking("a"))
            async with asyncio.timeout(PATIENCE):
                while not peer.has_merged.is_set():  # noqa: ASYNC110 (threads wait for it too)
                    await asyncio.sleep(0.001)
            assert peer.totals == {"a": n}

        for n in (1, 2, 3):
            asyncio.run(scenario(n))

    def test_an_event_loop_that_stands_still_does_not_keep_others_from_sending(
        self, calls: Calls
    ) -> None:
        peer = Peer()
        store = regional({"us": peer}, every_ns=MILLISECOND)
        still = asyncio.new_event_loop()
        still.run_until_complete(store.arun(taking("a")))
        calls.run(store, taking("b"))
        calls.wait_for(peer.has_merged)
        assert peer.totals == {"a": 1, "b": 1}
        pending = asyncio.all_tasks(still)
        for task in pending:
            task.cancel()
        still.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        still.close()

    def test_a_loop_that_ends_before_its_task_has_begun_does_not_end_reports(self) -> None:
        peer = Peer()
        store = regional({"us": peer}, every_ns=MILLISECOND)
        asyncio.run(store.arun(taking("a")))  # the loop ends at once
        store.run(taking("a"))
        assert peer.has_merged.wait(PATIENCE)
        assert peer.totals == {"a": 2}
        store.close()

    def test_usage_is_kept_if_no_thread_can_be_started(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        peer = Peer()
        store = regional({"us": peer}, every_ns=MILLISECOND)

        def fail(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            assert store.run(taking("a"))[0].allowed
        store.run(taking("a"))
        assert peer.has_merged.wait(PATIENCE)
        assert peer.totals == {"a": 2}
        store.close()

    @pytest.mark.parametrize(
        ("options", "accuracies", "expected"),
        [
            ({}, {}, Fraction(1)),
            ({"max_debt": None}, {}, None),
            ({"max_debt": 2}, {}, Fraction(2)),
            ({}, {"g": Accuracy(across_regions=True)}, Fraction(1)),
            (
                {"max_debt": 2},
                {"g": Accuracy(across_regions=True, max_region_debt=Fraction(0))},
                Fraction(0),
            ),
        ],
    )
    def test_late_usage_makes_a_debt_of_one_limit_unless_told_otherwise(
        self,
        options: dict[str, Any],
        accuracies: dict[str, Accuracy],
        expected: Fraction | None,
    ) -> None:
        clock = ManualClock(1_000)
        peer = Peer()
        store = ReplicatedStore(
            LeaseGrantingStore(clock=clock),
            region="eu",
            peers={"us": peer},
            every_ns=HOUR,
            clock=clock,
            **options,
        )
        store.set_accuracies(accuracies)
        store.run(taking("a", 10))
        clock.advance(5)
        store.exchange()
        assert [merge.max_debt for merge in peer.merged] == [expected]

    def test_the_lag_of_a_region_is_a_metric(self) -> None:
        clock = ManualClock(1_000)
        store = ReplicatedStore(
            LeaseGrantingStore(clock=clock),
            region="eu",
            peers={"la": Peer()},
            every_ns=HOUR,
            clock=clock,
        )
        store.run(taking("a"))
        clock.advance(3)
        assert METRICS.value("region_lag_seconds", peer="la") == 3
        store.exchange()
        assert METRICS.value("region_lag_seconds", peer="la") == 0


class TestEnd:
    def test_a_store_that_is_closed_reports_the_rest_and_closes_the_others(
        self, calls: Calls
    ) -> None:
        peer = Peer()
        store = regional({"us": peer})
        calls.run(store, taking("a", 4))
        calls.close(store)
        calls.close(store)
        assert peer.totals == {"a": 4}
        assert peer.is_closed

    def test_the_last_reports_are_as_many_as_needed(self, calls: Calls) -> None:
        peer = Peer()
        store = regional({"us": peer})
        for n in range(MOST_COUNTERS + 10):
            calls.run(store, taking(f"k{n}"))
        calls.close(store)
        assert len(peer.totals) == MOST_COUNTERS + 10

    def test_what_a_closed_store_could_not_report_is_logged_and_is_no_lag(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        peer = Peer()
        peer.error = GONE
        clock = ManualClock(1_000)
        store = ReplicatedStore(
            LeaseGrantingStore(), region="eu", peers={"away": peer}, clock=clock
        )
        store.run(taking("a"))
        clock.advance(5)
        assert METRICS.value("region_lag_seconds", peer="away") == 5
        store.close()
        assert METRICS.value("region_lag_seconds", peer="away") == 0
        assert "closed before all usage of 1 counters was reported to away" in caplog.text

    def test_a_store_without_references_is_collected_and_its_threads_end(self) -> None:
        peer = Peer()
        store = regional({"nz": peer}, every_ns=MILLISECOND)
        store.run(taking("a"))
        assert peer.has_merged.wait(PATIENCE)
        threads = [one for one in threading.enumerate() if one.name == "headgate-region-nz"]
        gone = weakref.ref(store)
        del store
        while gone() is not None:  # the thread may be about to let go of it
            gc.collect()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def test_a_store_without_references_is_collected_while_a_region_is_gone(self) -> None:
        async def scenario() -> None:
            peer = Peer()
            peer.error = GONE
            store = regional({"us": peer})
            await store.arun(taking("a"))
            await asyncio.sleep(0)
            gone = weakref.ref(store)
            del store
            gc.collect()
            assert gone() is None

        asyncio.run(scenario())

    def test_a_forked_process_reports_its_own_usage_under_a_name_of_its_own(self) -> None:
        peer = Peer()
        store = regional({"us": peer})
        store.run(taking("a", 4))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            store.run(taking("b", 2))
            store.exchange()
            sent = ";".join(f"{one.origin} {peer.totals}" for one in peer.merged)
            os.write(writing, sent.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            origin, _, totals = pipe.read().partition(" ")
        store.exchange()
        assert totals == "{'b': 2}"
        assert peer.totals == {"a": 4}
        assert origin != peer.merged[0].origin


class TestOptions:
    def test_it_has_the_properties_of_the_local_store(self) -> None:
        local = Peer()
        store = ReplicatedStore(local, region="eu", peers={"us": Peer()}, every_ns=HOUR)
        store.set_accuracies({"g": Accuracy(batch=3)})
        assert local.accuracies == {"g": Accuracy(batch=3)}
        assert store.grants_leases
        assert store.may_fail
        assert not regional({"us": Peer()}).may_fail
        assert "eu" in repr(store)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"region": ""}, "'' is not a region"),
            ({"region": "a/b"}, "'a/b' is not a region"),
            ({"region": "us"}, "among its own peers"),
            ({"peers": {}}, "has no peers"),
            ({"every_ns": 1}, "every_ns is 1"),
            ({"max_keys": 0}, "max_keys is 0"),
            ({"max_debt": -1}, "max_debt is -1"),
            ({"max_debt": 0.5}, "max_debt is 0.5"),
        ],
    )
    def test_invalid_ones_raise(self, options: dict[str, object], problem: str) -> None:
        given = {"region": "eu", "peers": {"us": Peer()}} | options
        with pytest.raises(OptionError, match=problem):
            ReplicatedStore(LeaseGrantingStore(), **given)  # type: ignore[arg-type] # wrong ones, on purpose

    def test_a_region_is_not_its_own_peer_and_a_peer_merges_usage(self) -> None:
        local = LeaseGrantingStore()
        with pytest.raises(OptionError, match="all would count twice"):
            ReplicatedStore(local, region="eu", peers={"us": local})
        other = Peer()
        other.grants_leases = False
        with pytest.raises(OptionError, match="cannot merge the usage of others"):
            ReplicatedStore(local, region="eu", peers={"us": other})
