"""The leased store as its callers see it, in threads and in event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from typing import TypeVar

import pytest

from headgate.errors import StoreError
from headgate.limits import Accuracy, Concurrency, FixedWindow, TokenBucket
from headgate.observability import METRICS
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.leases.store import SPREAD
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    Hold,
    Operation,
    Refund,
    ReleaseSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_remote import (
    ACCURACIES,
    EXACT,
    LIMIT,
    Driven,
    Remote,
    allowed,
    check,
)
from tests.support.lease_store import LeaseGrantingStore

R = TypeVar("R")

# ---- takes of one limit ---------------------------------------------------------------------


def test_groups_without_accuracies_go_to_the_store(driven: Driven) -> None:
    hit = driven.prepare(EXACT, "exact")
    assert hit().remaining == EXACT.limit - 1
    assert driven.remote.asked == [Take((check("exact"),))]


def test_hits_on_a_hot_key_ask_once_in_a_batch(driven: Driven) -> None:
    hit = driven.prepare()
    for _ in range(50):
        hit()
    driven.remote.asked.clear()
    outcomes = [hit() for _ in range(220)]
    assert all(outcome.allowed for outcome in outcomes)
    assert len(driven.remote.asked) == 20
    assert {outcome.source for outcome in outcomes} == {"lease", "store"}
    remaining = [outcome.remaining for outcome in outcomes]
    assert remaining == list(range(remaining[0], remaining[0] - 220, -1))
    driven.close()
    assert driven.used() == 270


def test_a_decision_from_a_lease_has_all_figures(driven: Driven) -> None:
    hit = driven.prepare()
    while (outcome := hit()).source != "lease":
        pass
    assert outcome.allowed
    assert outcome.retry_after_ns == 0
    assert outcome.reset_after_ns == (1_000 - outcome.remaining) * SECOND


def test_a_cost_of_nothing_is_allowed(driven: Driven) -> None:
    assert driven.prepare()("k", 0).allowed


def test_a_handle_outlives_a_change_of_accuracies(driven: Driven) -> None:
    hit = driven.prepare()
    for _ in range(30):
        hit()
    driven.store.set_accuracies({"leased": Accuracy(batch=20)})
    driven.keep()
    assert driven.used() == 30
    for _ in range(80):
        hit()
    driven.remote.asked.clear()
    sources = [hit().source for _ in range(42)]
    assert sources.count("lease") == 40
    driven.store.set_accuracies({})
    driven.keep()
    assert hit().source == "store"
    assert driven.used() == 153


def test_a_handle_that_was_exact_leases_once_its_group_has_an_accuracy(driven: Driven) -> None:
    driven.store.set_accuracies({})
    hit = driven.prepare()
    for _ in range(50):
        assert hit().source == "store"
    driven.store.set_accuracies(ACCURACIES)
    assert "lease" in {hit().source for _ in range(50)}


def test_a_handle_of_a_closed_store_decides_nothing_here(driven: Driven) -> None:
    hit = driven.prepare()
    while hit().source != "lease":
        pass
    driven.close()
    driven.remote.asked.clear()
    assert hit().source == "store"
    assert driven.remote.asked == [Take((check(),))]


def test_a_lease_goes_on_while_the_store_is_gone_and_not_longer(driven: Driven) -> None:
    hit = driven.prepare()
    driven.warm()
    held = driven.store.units_held()
    driven.remote.is_gone = True
    assert all(hit().allowed for _ in range(held))
    with pytest.raises(StoreError):
        hit()


def test_peeks_go_to_the_store(driven: Driven) -> None:
    driven.warm()
    driven.remote.asked.clear()
    peek = Take((check(),), consume=False)
    driven.run(peek)
    assert driven.remote.asked == [peek]


def test_a_store_that_grants_no_leases_is_asked_each_time(driven: Driven) -> None:
    driven.remote.grants_leases = False
    store = LeasedStore(driven.remote)
    store.set_accuracies(ACCURACIES)
    for _ in range(50):
        assert store.run(Take((check(),)))[0].allowed
    assert len(driven.remote.asked) == 50


def test_takes_of_exact_groups_count_as_demand(driven: Driven) -> None:
    driven.store.set_accuracies({})
    hot = Take((Check("g", "hot", LIMIT, 3),))
    driven.prepare(LIMIT, "g")("warm", 2)
    driven.run(hot)
    driven.run(TakeEach((hot, Take((Check("g", "peeked at", LIMIT, 50),), consume=False))))
    assert [one.key for one in driven.store.hot_keys()] == ["hot", "warm"]


def test_of_prepared_takes_of_exact_groups_one_of_some_counts_for_all(driven: Driven) -> None:
    driven.store.set_accuracies({})
    hit = driven.prepare(LIMIT, "g")
    for _ in range(200):
        hit("hot", 2)
    driven.run(Take((Check("g", "all", LIMIT, 400),)))
    driven.run(Take((Check("g", "most", LIMIT, 400 - 2 * SPREAD),)))
    assert [one.key for one in driven.store.hot_keys()] in (
        ["all", "hot", "most"],
        ["hot", "all", "most"],
    )


# ---- denials --------------------------------------------------------------------------------


def test_a_denial_is_remembered_until_a_refund(driven: Driven) -> None:
    driven.remote.store.run(Charge((check(cost=1_000),)))
    assert driven.take(check()) == [False]
    driven.remote.asked.clear()
    before = METRICS.value("denials_from_cache")
    (outcome,) = driven.run(Take((check(),)))
    assert outcome.source == "cache"
    assert not outcome.allowed
    assert driven.remote.asked == []
    assert METRICS.value("denials_from_cache") == before + 1
    driven.run(Refund((check(cost=5),)))
    assert driven.take(check()) == [True]


def test_a_larger_cost_than_the_denied_one_is_for_the_store(driven: Driven) -> None:
    """Only the store knows when it fits: the time of the smaller cost is too early."""
    driven.store.set_accuracies({"leased": Accuracy(denials_ns=SECOND)})
    hit = driven.prepare()
    driven.run(Charge((check(cost=1_000),)))
    waits = [hit("k", cost).retry_after_ns for cost in (1, 5, 2, 5, 1, 1_001, 1_002)]
    seconds = [None if wait is None else wait // SECOND for wait in waits]
    assert seconds == [1, 5, 2, 5, 1, None, None]
    asked = [one.checks[0].cost for one in driven.remote.asked if isinstance(one, Take)]
    assert asked == [1, 5, 2, 1_001]


def test_the_remaining_units_of_a_denial_are_counted_forward(driven: Driven) -> None:
    driven.store.set_accuracies({"leased": Accuracy(denials_ns=10 * SECOND)})
    hit = driven.prepare()
    driven.run(Charge((check(cost=998),)))
    assert (hit("k", 8).remaining, hit("k", 1_001).remaining) == (2, 2)
    driven.remote.asked.clear()
    driven.remote.clock.advance(3.5)
    outcome = hit("k", 8)
    assert (outcome.source, outcome.remaining) == ("cache", 5)
    assert outcome.retry_after_ns == 2_500 * MILLISECOND
    assert hit("k", 1_001).remaining == 5
    assert driven.remote.asked == []
    (exact,) = driven.remote.store.run(Take((check(cost=8),)))
    assert outcome._replace(source="store") == exact


def test_a_take_that_is_allowed_ends_the_denials_of_larger_costs(driven: Driven) -> None:
    driven.store.set_accuracies({"leased": Accuracy(denials_ns=10 * SECOND)})
    hit = driven.prepare()
    driven.run(Charge((check(cost=998),)))
    assert hit("k", 8).retry_after_ns == 6 * SECOND
    assert hit("k", 2).allowed
    assert hit("k", 8).retry_after_ns == 8 * SECOND


@pytest.mark.parametrize("limit", [TokenBucket(20, 2), FixedWindow(20, 10), TokenBucket(20, 0.001)])
@pytest.mark.parametrize("cost", [1, 3])
def test_every_denial_says_exactly_when_the_cost_fits(
    driven: Driven, limit: TokenBucket | FixedWindow, cost: int
) -> None:
    """Whether it comes from the store, from a dry lease or from memory."""
    sources = set()
    for place in range(12):
        key = f"key-{place}"
        hit = driven.prepare(limit)
        driven.remote.clock.advance_ns(10 * SECOND - driven.remote.clock() % (10 * SECOND))
        driven.run(Charge((Check("leased", key, limit, place),)))
        while (outcome := hit(key, cost)).allowed:
            pass
        if place % 2:
            driven.remote.clock.advance_ns(place * 30 * MILLISECOND)
            outcome = hit(key, cost)
        sources.add(outcome.source)
        wait_ns = outcome.retry_after_ns
        assert wait_ns is not None
        driven.advance_ns(wait_ns - 1)
        assert not hit(key, cost).allowed, f"{outcome}: allowed too early"
        driven.advance_ns(1)
        assert hit(key, cost).allowed, f"{outcome}: denied after the wait"
    assert "lease" in sources


# ---- several limits -------------------------------------------------------------------------


def test_all_leased_checks_are_taken_without_a_round_trip(driven: Driven) -> None:
    driven.warm()
    driven.warm("too")
    driven.remote.asked.clear()
    outcomes = driven.run(Take((check(), check("too"))))
    assert [one.source for one in outcomes] == ["lease", "lease"]
    prepared = driven.store.prepare([("leased", LIMIT), ("too", LIMIT)])
    assert [one.source for one in prepared.take(("k", "k"), (1, 1))] == ["lease", "lease"]
    assert driven.remote.asked == []


def test_of_several_checks_only_the_rest_goes_to_the_store(driven: Driven) -> None:
    driven.warm()
    driven.remote.asked.clear()
    held = driven.store.units_held()
    outcomes = driven.run(Take((check("exact"), check())))
    assert [one.source for one in outcomes] == ["store", "lease"]
    assert driven.remote.asked == [Take((check("exact"),))]
    assert driven.store.units_held() == held - 1


def test_units_are_put_back_if_the_store_denies_the_rest(driven: Driven) -> None:
    driven.warm()
    driven.remote.store.run(Charge((check("exact", 1_000),)))
    held = driven.store.units_held()
    outcomes = driven.run(Take((check(), check("exact"))))
    assert [one.allowed for one in outcomes] == [True, False]
    assert driven.store.units_held() == held
    assert outcomes[0].remaining == 1_000 - driven.used() + held


def test_units_are_put_back_if_the_store_fails(driven: Driven) -> None:
    driven.warm()
    held = driven.store.units_held()
    driven.remote.is_gone = True
    with pytest.raises(StoreError):
        driven.run(Take((check(), check("exact"))))
    with pytest.raises(StoreError):
        driven.run(TakeEach((Take((check("exact"), check())), Take((check(),)))))
    assert driven.store.units_held() == held


def test_several_leased_checks_get_leases(driven: Driven) -> None:
    for _ in range(50):
        assert driven.take(check(), check("too")) == [True, True]
    driven.remote.asked.clear()
    for _ in range(100):
        assert driven.take(check(), check("too")) == [True, True]
    assert len(driven.remote.asked) <= 20
    assert all(isinstance(one, GrantLease) for one in driven.remote.asked)
    driven.close()
    assert driven.used() == driven.used("too") == 150


def test_one_check_that_is_denied_here_denies_all_and_charges_none(driven: Driven) -> None:
    driven.remote.store.run(Charge((check("too", 1_000),)))
    driven.warm()
    for _ in range(20):
        driven.take(check("too"))
    before = driven.used() - driven.store.units_held()
    for _ in range(20):
        assert driven.take(check(), check("too")) == [True, False]
    driven.close()
    assert driven.used() == before


def test_each_take_of_several_is_by_itself_in_one_round_trip(driven: Driven) -> None:
    driven.warm()
    driven.remote.asked.clear()
    takes = (Take((check(),)), Take((check("exact"),)), Take((check("exact", 5), check())))
    replies = driven.run(TakeEach(takes))
    assert [allowed(reply) for reply in replies] == [[True], [True], [True, True]]
    assert len(driven.remote.asked) == 1
    assert driven.used("exact") == 6


def test_a_hot_key_among_several_takes_gets_a_lease_in_the_background(driven: Driven) -> None:
    both = TakeEach((Take((check(),)), Take((check("too"),))))
    for _ in range(20):
        driven.run(both)
    assert not any(isinstance(one, GrantLease) for one in driven.remote.asked)
    driven.keep()
    driven.remote.asked.clear()
    for _ in range(5):
        replies = driven.run(both)
        assert [allowed(reply) for reply in replies] == [[True], [True]]
    assert driven.remote.asked == []
    driven.close()
    assert driven.used() == 25


def test_several_takes_that_are_denied_get_no_lease(driven: Driven) -> None:
    assert driven.take(Check("exact", "k", EXACT, 1_000)) == [True]
    for _ in range(50):
        (reply,) = driven.run(TakeEach((Take((check("exact"), check())),)))
        assert allowed(reply) == [False, True]
    driven.keep()
    assert not any(isinstance(one, GrantLease) for one in driven.remote.asked)
    assert driven.used() == 0


def test_a_denial_here_beside_an_exact_check_charges_nothing(driven: Driven) -> None:
    limit = TokenBucket(20, 0.001)
    while driven.take(Check("leased", "k", limit)) == [True]:
        pass
    before = driven.used()
    both = Take((Check("leased", "k", limit), check("exact")))
    (each,) = driven.run(TakeEach((both,)))
    assert allowed(each) == allowed(driven.run(both)) == [False, True]
    assert driven.used() == before
    assert driven.used("exact") == 0


# ---- changes of counters --------------------------------------------------------------------


def test_a_reset_ends_the_lease(driven: Driven) -> None:
    driven.warm()
    driven.run(Reset((check(),)))
    assert driven.store.units_held() == 0
    assert driven.take(check()) == [True]
    assert driven.used() >= 1


def test_a_slot_that_was_denied_may_be_had_as_soon_as_one_is_released(driven: Driven) -> None:
    slot = (Check("leased", "slots", Concurrency(1, 60)),)
    assert driven.run(Take(slot, lease="a"))[0].allowed
    assert not driven.run(Take(slot, lease="b"))[0].allowed
    assert driven.run(ReleaseSlot(slot, "a"))
    assert driven.run(Take(slot, lease="b"))[0].allowed


def test_a_cancelled_hold_ends_the_denial_that_it_caused(driven: Driven) -> None:
    limit = FixedWindow(10, 3_600)
    assert driven.run(Hold((Check("leased", "k", limit, 10),), "h", SECOND))[0].allowed
    assert driven.take(Check("leased", "k", limit)) == [False]
    assert driven.run(Settle((Check("leased", "k", limit, 0),), "h", charge_lapsed=False))
    assert driven.take(Check("leased", "k", limit)) == [True]


# ---- callers that wait for one lease --------------------------------------------------------


def test_threads_that_find_a_lease_used_up_make_one_request() -> None:
    driven = Driven(None)
    driven.warm()
    driven.use_up()
    remote = driven.remote
    remote.asked.clear()
    remote.is_asked.clear()
    remote.gate = threading.Event()
    replies: list[list[bool]] = []
    threads = [
        threading.Thread(target=lambda: replies.append(driven.take(check()))) for _ in range(5)
    ]
    threads[0].start()
    assert remote.is_asked.wait(10)
    for thread in threads[1:]:
        thread.start()
    remote.gate.set()
    for thread in threads:
        thread.join(10)
    assert replies == [[True]] * 5
    assert len(remote.asked) == 1


async def take(store: LeasedStore, *checks: Check) -> list[bool]:
    return [one.allowed for one in await store.arun(Take(checks))]


@pytest.mark.parametrize("is_gone", [False, True])
def test_tasks_that_find_a_lease_used_up_make_one_request(*, is_gone: bool) -> None:
    with asyncio.Runner() as runner:
        driven = Driven(runner)
        driven.warm()
        driven.use_up()
        driven.remote.asked.clear()

        async def main() -> list[list[bool] | BaseException]:
            driven.remote.held = asyncio.Event()
            tasks = [asyncio.ensure_future(take(driven.store, check())) for _ in range(8)]
            await asyncio.sleep(0)
            driven.remote.is_gone = is_gone
            driven.remote.held.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

        replies = runner.run(main())
        assert len(driven.remote.asked) == 1
        if not is_gone:
            assert replies == [[True]] * 8
            return
        errors = [reply for reply in replies if isinstance(reply, StoreError)]
        assert len(errors) == 8
        assert [error.reason for error in errors] == ["timeout"] * 8
        assert [error.is_undone for error in errors].count(False) == 1  # the one that was sent


def test_threads_together_are_allowed_what_the_limit_has() -> None:
    driven = Driven(None)
    hit = driven.prepare()
    counts = []

    def work() -> None:
        counts.append(sum(hit().allowed for _ in range(500)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(counts) == 1_000
    assert len(driven.remote.asked) < 600


# ---- upkeep, the end, forks -----------------------------------------------------------------


def test_closing_returns_all_units(driven: Driven) -> None:
    hit = driven.prepare()
    for _ in range(33):
        hit()
    driven.close()
    assert driven.used() == 33


def test_upkeep_returns_what_is_due(driven: Driven) -> None:
    driven.warm()
    assert driven.store.units_held() > 0
    driven.remote.clock.advance_ns(SECOND * 4 // 10)
    driven.keep()
    assert driven.store.units_held() == 0
    assert driven.keep() is None


def test_a_postpaid_lease_is_reported_by_upkeep(driven: Driven) -> None:
    driven.store.set_accuracies({"leased": Accuracy(batch=100, sync_ns=50 * MILLISECOND)})
    driven.warm()
    for _ in range(5):
        driven.remote.clock.advance_ns(10 * MILLISECOND)
        driven.take(check())
    driven.remote.clock.advance_ns(50 * MILLISECOND)
    driven.remote.asked.clear()
    driven.keep()
    (report,) = driven.remote.asked
    assert isinstance(report, GrantLease)
    assert not report.is_charged
    assert report.used > report.reported
    driven.close()


@pytest.mark.parametrize("in_loop", [False, True])
def test_upkeep_runs_in_the_background_when_it_is_due(*, in_loop: bool) -> None:
    """In a thread of its own, or in the loop of the caller."""

    returned = threading.Event()

    class Watched(LeaseGrantingStore):
        def run(self, operation: Operation[R]) -> R:
            if isinstance(operation, GrantLease) and operation.most == 0:
                returned.set()
            return super().run(operation)

    with asyncio.Runner() as runner:
        driven = Driven(runner if in_loop else None, keeps=True)
        driven.remote.store = Watched(clock=driven.remote.clock)
        driven.warm()
        driven.remote.clock.advance_ns(SECOND * 4 // 10)
        if in_loop:
            runner.run(asyncio.wait_for(asyncio.to_thread(returned.wait), 10))
        assert returned.wait(10)
        driven.close()


def test_one_store_serves_several_loops() -> None:
    clock = ManualClock(1_000.0)
    remote = Remote(clock)
    store = LeasedStore(remote)
    store.set_accuracies(ACCURACIES)

    async def main() -> None:
        for _ in range(30):
            assert await take(store, check()) == [True]

    for _ in range(3):
        asyncio.run(main())
    store.close()
    assert remote.store.used_in("leased", "k") == 90


def test_units_that_come_after_a_change_of_accuracies_are_returned() -> None:
    driven = Driven(None)
    driven.warm()
    driven.use_up()
    before = driven.used()
    driven.remote.gate = threading.Event()
    driven.remote.is_asked.clear()
    thread = threading.Thread(target=driven.take, args=(check(),))
    thread.start()
    assert driven.remote.is_asked.wait(10)
    driven.store.set_accuracies({})
    driven.remote.gate.set()
    thread.join(10)
    driven.keep()
    assert driven.used() == before + 1


def test_the_background_does_not_keep_the_store_alive() -> None:
    driven = Driven(None, keeps=True)
    driven.warm()
    watched = weakref.ref(driven.store)
    del driven
    gc.collect()
    assert watched() is None


def test_a_forked_process_begins_without_leases() -> None:
    driven = Driven(None)
    hit = driven.prepare()
    driven.warm()
    held = driven.store.units_held()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"%d %s" % (driven.store.units_held(), hit().source.encode()))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 20) == b"0 store"
    os.close(reading)
    os.close(writing)
    assert driven.store.units_held() == held


def test_units_held_and_the_bound_are_measured(driven: Driven) -> None:
    driven.warm()
    (bound,) = driven.store.bounds()
    assert (bound.group, bound.holders, bound.batch, bound.bound) == ("leased", 1, 10, 10)
    assert METRICS.value("lease_units_held") >= driven.store.units_held()
    assert METRICS.value("overshoot_bound") >= 10
    assert METRICS.value("lease_round_trips") > 0


def test_a_handle_uses_no_unit_after_the_lease_expired() -> None:
    clock = ManualClock()
    store = LeasedStore(LeaseGrantingStore(clock=clock), clock=clock, keeps=False)
    store.set_accuracies({"leased": Accuracy(batch=10)})
    take_one = store.prepare([("leased", FixedWindow(100, 1))]).take
    while take_one(("key",), (1,))[0].source != "lease":
        pass
    clock.advance(1)
    assert take_one(("key",), (1,))[0].source == "store"
