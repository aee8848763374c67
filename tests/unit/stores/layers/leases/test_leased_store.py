"""The store that borrows: what callers that may block see of it."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import pytest

from headgate.errors import CostError, KeyInvalidError, StoreError
from headgate.limits import Accuracy
from headgate.observability import MEASURES
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.leases.store import Flight
from headgate.stores.operations import (
    Charge,
    GrantLease,
    Refund,
    Reset,
    Take,
)
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.lease_remote import EXACT, LIMIT, TERMS, Remote, check, take, used, warm


@pytest.fixture
def remote() -> Remote:
    return Remote(ManualClock(1_000.0))


@pytest.fixture
def store(remote: Remote) -> LeasedStore:
    store = LeasedStore(remote, keeps=False)
    store.adopt(TERMS)
    return store


def test_groups_without_terms_have_the_short_cut_of_the_store_itself(remote: Remote) -> None:
    store = LeasedStore(remote)
    store.adopt(TERMS)
    hit = store.hitter((("exact", EXACT),))
    assert hit is not None
    assert hit("key", 1).remaining == EXACT.limit - 1
    assert len(remote.handed_out) == 1
    assert store.take_quickly((check("exact"),)) is None


def test_who_waits_for_a_loan_that_fails_hears_why_and_was_not_charged() -> None:
    flight = Flight()
    flight.land(StoreError("gone", reason="timeout"))
    with pytest.raises(StoreError, match="gone") as caught:
        flight.wait()
    assert caught.value.reason == "timeout"
    assert caught.value.is_undone


def test_hits_on_a_hot_key_ask_once_in_a_batch(store: LeasedStore, remote: Remote) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    for _ in range(50):
        hit("k", 1)
    remote.asked.clear()
    decisions = [hit("k", 1) for _ in range(220)]
    assert all(decisions)
    assert len(remote.asked) == 20
    assert {decision.source for decision in decisions} == {"lease", "store"}
    remaining = [decision.remaining for decision in decisions]
    assert remaining == list(range(remaining[0], remaining[0] - 220, -1))


def test_a_decision_from_a_loan_has_all_figures(store: LeasedStore) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    while True:
        decision = hit("k", 1)
        if decision.source == "lease":
            break
    assert (decision.allowed, decision.key, decision.limit) == (True, "k", LIMIT)
    assert decision.retry_after == 0.0
    assert decision.reset_after == 1_000 - decision.remaining
    assert decision.figures()[:4] == (True, "k", LIMIT, decision.remaining)


@pytest.mark.parametrize(("key", "cost", "error"), [("", 1, KeyInvalidError), ("k", -1, CostError)])
def test_what_makes_no_sense_is_an_error(
    store: LeasedStore, key: str, cost: int, error: type[Exception]
) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    with pytest.raises(error):
        hit(key, cost)


def test_a_cost_of_nothing_is_allowed(store: LeasedStore) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    assert hit("k", 0)


def test_a_hitter_outlives_a_change_of_terms(store: LeasedStore, remote: Remote) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    for _ in range(30):
        hit("k", 1)
    store.adopt({"leased": Accuracy(batch=20)})
    store.keep()
    assert used(remote) == 30
    for _ in range(80):
        hit("k", 1)
    remote.asked.clear()
    sources = [hit("k", 1).source for _ in range(42)]
    assert sources.count("lease") == 40
    store.adopt({})
    store.keep()
    assert hit("k", 1).source == "store"
    assert used(remote) == 153


def test_all_leased_checks_are_taken_without_a_round_trip(
    store: LeasedStore, remote: Remote
) -> None:
    warm(store)
    warm(store, "too")
    remote.asked.clear()
    taken = store.take_quickly((check(), check("too")))
    assert taken is not None
    assert [decision.source for decision in taken] == ["lease", "lease"]
    assert remote.asked == []


def test_of_several_checks_only_the_rest_is_asked_for(store: LeasedStore, remote: Remote) -> None:
    warm(store)
    remote.asked.clear()
    held = store._desk.units_held()
    taken = store.take_quickly((check("exact"), check()))
    assert taken is not None
    assert [decision.source for decision in taken] == ["store", "lease"]
    assert remote.asked == [Take((check("exact"),))]
    assert store._desk.units_held() == held - 1


def test_what_was_taken_here_is_put_back_if_the_store_refuses_the_rest(
    store: LeasedStore, remote: Remote
) -> None:
    warm(store)
    remote.store.run(Charge((check("exact", 1_000),)))
    held = store._desk.units_held()
    outcomes = store.run(Take((check(), check("exact"))))
    assert [one.allowed for one in outcomes] == [True, False]
    assert store._desk.units_held() == held
    assert outcomes[0].remaining == 1_000 - used(remote) + held


def test_what_was_taken_here_is_put_back_if_the_store_fails(
    store: LeasedStore, remote: Remote
) -> None:
    warm(store)
    held = store._desk.units_held()
    remote.is_gone = True
    with pytest.raises(StoreError):
        store.run(Take((check(), check("exact"))))
    assert store._desk.units_held() == held


def test_several_leased_checks_are_borrowed_for(store: LeasedStore, remote: Remote) -> None:
    for _ in range(50):
        assert take(store, check(), check("too")) == [True, True]
    remote.asked.clear()
    for _ in range(100):
        assert take(store, check(), check("too")) == [True, True]
    assert len(remote.asked) <= 20
    assert all(isinstance(one, GrantLease) for one in remote.asked)
    store.close()
    assert used(remote) == used(remote, "too") == 150


def test_one_check_that_is_refused_here_refuses_all_and_charges_none(
    store: LeasedStore, remote: Remote
) -> None:
    remote.store.run(Charge((check("too", 1_000),)))
    warm(store)
    for _ in range(20):
        take(store, check("too"))
    before = used(remote) - store._desk.units_held()
    for _ in range(20):
        assert take(store, check(), check("too")) == [True, False]
    store.close()
    assert used(remote) == before


def test_a_loan_goes_on_while_the_store_is_gone_and_not_longer(
    store: LeasedStore, remote: Remote
) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    warm(store)
    held = int(store._desk.units_held())
    remote.is_gone = True
    assert all(hit("k", 1) for _ in range(held))
    with pytest.raises(StoreError):
        hit("k", 1)


def test_looks_go_to_the_store(store: LeasedStore, remote: Remote) -> None:
    warm(store)
    remote.asked.clear()
    look = Take((check(),), consume=False)
    store.run(look)
    assert remote.asked == [look]


def test_a_reset_forgets_what_was_lent(store: LeasedStore, remote: Remote) -> None:
    warm(store)
    store.run(Reset((check(),)))
    assert store._desk.units_held() == 0
    assert take(store, check()) == [True]
    assert used(remote) >= 1


def test_a_refusal_is_remembered_until_a_refund(store: LeasedStore, remote: Remote) -> None:
    remote.store.run(Charge((check(cost=1_000),)))
    assert take(store, check()) == [False]
    remote.asked.clear()
    before = MEASURES.value("denials_from_cache")
    taken = store.take_quickly((check(),))
    assert taken is not None
    assert taken[0].source == "cache"
    assert not taken[0]
    assert remote.asked == []
    assert MEASURES.value("denials_from_cache") == before + 1
    store.run(Refund((check(cost=5),)))
    assert take(store, check()) == [True]


def test_threads_that_find_a_loan_used_up_make_one_request(
    store: LeasedStore, remote: Remote
) -> None:
    warm(store)
    while store._desk.units_held():
        take(store, check())
    remote.asked.clear()
    remote.is_asked.clear()
    remote.gate = threading.Event()
    replies: list[list[bool]] = []
    threads = [
        threading.Thread(target=lambda: replies.append(take(store, check()))) for _ in range(5)
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


def test_threads_together_are_admitted_what_the_limit_allows(remote: Remote) -> None:
    store = LeasedStore(remote, keeps=False)
    store.adopt(TERMS)
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    counts = []

    def work() -> None:
        counts.append(sum(bool(hit("k", 1)) for _ in range(500)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(counts) == 1_000
    assert len(remote.asked) < 600


def test_closing_gives_all_back(store: LeasedStore, remote: Remote) -> None:
    hit = store.hitter((("leased", LIMIT),))
    assert hit is not None
    for _ in range(33):
        hit("k", 1)
    store.close()
    assert used(remote) == 33


def test_what_is_due_is_given_back_by_keeping(store: LeasedStore, remote: Remote) -> None:
    warm(store)
    assert store._desk.units_held() > 0
    remote.clock.advance_ns(SECOND * 4 // 10)
    store.keep()
    assert store._desk.units_held() == 0
    assert store.keep() is None


def test_the_background_neither_keeps_the_store_nor_is_needed(remote: Remote) -> None:
    store = LeasedStore(remote)
    store.adopt(TERMS)
    warm(store)
    watched = weakref.ref(store)
    del store
    gc.collect()
    assert watched() is None


def test_a_forked_process_begins_without_loans(store: LeasedStore) -> None:
    warm(store)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"%d" % store._desk.units_held())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 10) == b"0"
    os.close(reading)
    os.close(writing)
    assert store._desk.units_held() > 0


def test_what_is_held_and_its_bound_are_told(store: LeasedStore) -> None:
    warm(store)
    (bound,) = store.bounds()
    assert (bound.group, bound.holders, bound.batch, bound.bound) == ("leased", 1, 10, 10)
    assert MEASURES.value("lease_units_held") >= store._desk.units_held()
    assert MEASURES.value("overshoot_bound") >= 10
    assert MEASURES.value("lease_round_trips") > 0


def test_a_store_that_cannot_lend_is_asked_each_time(remote: Remote) -> None:
    remote.lends = False
    store = LeasedStore(remote)
    store.adopt(TERMS)
    for _ in range(50):
        take(store, check())
    assert len(remote.asked) == 50
