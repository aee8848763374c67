"""The store of a region, for callers that block."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from headgate import RateLimiter
from headgate.algorithms import Outcome
from headgate.errors import OptionError, StoreError
from headgate.limits import Accuracy, TokenBucket
from headgate.observability import MEASURES
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.layers.replication.tally import MOST_AT_ONCE, MOST_CHECKS
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, GrantLease, MergeUsage, Refund, Take, TakeEach
from headgate.testing import ManualClock
from headgate.units import HOUR, MILLISECOND
from tests.support.region_fakes import HungPeer, Peer

if TYPE_CHECKING:
    from headgate.stores.base import Store, Terms
    from headgate.stores.operations import Operation

LIMIT = TokenBucket(10, 1)
PATIENCE = 30.0


def regional(peers: dict[str, Store], *, every_ns: int = HOUR) -> ReplicatedStore:
    """A store that tells nobody by itself, unless it is told how often."""
    clock = ManualClock(1_000)
    local = MemoryStore(clock=clock)
    return ReplicatedStore(local, region="eu", peers=peers, every_ns=every_ns, clock=clock)


def check(key: str, cost: int = 1) -> Check:
    return Check("g", key, LIMIT, cost)


def test_what_is_admitted_is_told_and_what_is_refused_is_not() -> None:
    peer = Peer()
    store = regional({"us": peer})
    store.run(Take((check("a", 8),)))
    store.run(Take((check("a", 8),)))
    store.run(TakeEach((Take((check("b", 2),)), Take((check("b", 20),)))))
    store.exchange()
    assert peer.totals == {"a": 8, "b": 2}


def test_limiters_and_their_short_cuts_are_told() -> None:
    peer = Peer()
    store = regional({"us": peer})
    limiter = RateLimiter("10/minute", store=store)
    for _ in range(12):
        limiter.hit("a")
    stacked = RateLimiter("10/minute; 20/hour", store=store, namespace="two")
    stacked.hit("b", cost=3)
    quick = store.take_quickly((check("c"),))
    if quick is None:
        store.run(Take((check("c"),)))
    assert store.take_quickly((check("c"),)) is not None
    store.exchange()
    assert peer.totals == {"a": 10, "b": 6, "c": 2}


def test_what_is_given_back_before_it_is_told_is_not_told() -> None:
    peer = Peer()
    store = regional({"us": peer})
    store.run(Take((check("a", 5),)))
    store.run(Refund((check("a", 2),)))
    store.exchange()
    assert peer.totals == {"a": 3}


def test_leases_are_told_when_they_are_taken_and_not_again_when_they_are_renewed() -> None:
    peer = Peer()
    store = regional({"us": peer})
    lent = store.run(GrantLease(check("a"), "node", most=4, ttl_ns=HOUR))
    assert lent.amount == 4
    store.exchange()
    assert peer.totals == {"a": 5}
    lent = store.run(GrantLease(check("a"), "node", most=4, ttl_ns=HOUR, unused=3))
    assert lent.amount == 4
    store.exchange()
    assert peer.totals == {"a": 7}  # 1 + 1 of the first loan + 1 + the second


def test_two_regions_count_together() -> None:
    clock = ManualClock(1_000)
    eu, us = MemoryStore(clock=clock), MemoryStore(clock=clock)
    ours = ReplicatedStore(eu, region="eu", peers={"us": us}, every_ns=HOUR)
    theirs = ReplicatedStore(us, region="us", peers={"eu": eu}, every_ns=HOUR)
    ours.run(Take((check("a", 6),)))
    theirs.run(Take((check("a", 3),)))
    ours.exchange()
    theirs.exchange()
    ours.exchange()
    for store in (ours, theirs):
        assert store.run(Take((check("a"),), consume=False))[0].remaining == 1


def test_only_groups_that_are_shared_are_told() -> None:
    peer = Peer()
    store = ReplicatedStore(
        MemoryStore(), region="eu", peers={"us": peer}, groups=["other"], every_ns=HOUR
    )
    store.run(Take((check("a"),)))
    store.share(["g"])
    store.run(Take((check("b"),)))
    store.share(())
    store.run(Take((check("c"),)))
    store.exchange()
    assert peer.totals == {"b": 1}


def test_regions_are_told_in_the_background() -> None:
    peer = Peer()
    with_thread = regional({"us": peer}, every_ns=MILLISECOND)
    for n in (1, 2):
        peer.has_heard.clear()
        with_thread.run(Take((check("a"),)))
        assert peer.has_heard.wait(PATIENCE)
        assert peer.totals == {"a": n}
    with_thread.close()


def test_a_region_that_hangs_delays_no_decision_and_no_other_region() -> None:
    hung, peer = HungPeer(), Peer()
    store = regional({"us": hung, "ap": peer}, every_ns=MILLISECOND)
    store.run(Take((check("a"),)))
    assert hung.was_asked.wait(PATIENCE)
    peer.has_heard.clear()
    assert store.run(Take((check("a"),)))[0].allowed
    assert peer.has_heard.wait(PATIENCE)
    hung.release.set()
    store.close()


def test_a_region_that_was_gone_is_told_when_it_is_back() -> None:
    peer = Peer()
    store = regional({"us": peer})
    peer.error = StoreError("gone", reason="unreachable")
    store.run(Take((check("a", 2),)))
    store.exchange()
    store.run(Take((check("a", 3),)))
    peer.error = None
    store.exchange()
    assert peer.totals == {"a": 5}


def test_a_region_that_was_gone_is_told_in_the_background_without_further_requests() -> None:
    peer = Peer()
    store = regional({"us": peer}, every_ns=MILLISECOND)
    peer.error = StoreError("gone", reason="unreachable")
    store.run(Take((check("a", 2),)))
    assert peer.has_failed.wait(PATIENCE)
    peer.error = None
    assert peer.has_heard.wait(PATIENCE)
    assert peer.totals == {"a": 2}
    store.close()


def test_a_region_that_is_gone_is_not_tried_with_every_message() -> None:
    peer = Peer()
    peer.error = StoreError("gone", reason="unreachable")
    store = regional({"us": peer})
    store.run(Take((check("a"),)))
    store.run(Take((Check("g", "b", TokenBucket(500, 1)),)))
    store.exchange()
    before = peer.attempts
    store.exchange()
    assert peer.attempts == before + 1


def test_messages_are_under_way_together() -> None:
    """Each waits for the other two, or nobody would be answered."""

    class Slow(Peer):
        together = threading.Barrier(3, timeout=PATIENCE)

        def run(self, operation: Operation[Any]) -> Any:
            self.together.wait()
            return super().run(operation)

    peer = Slow()
    store = regional({"us": peer})
    for n in range(2 * MOST_CHECKS + 1):
        store.run(Take((check(f"k{n}"),)))
    store.exchange()
    assert len(peer.totals) == 2 * MOST_CHECKS + 1


def test_the_last_words_are_as_many_as_there_are() -> None:
    peer = Peer()
    store = regional({"us": peer})
    for n in range(MOST_AT_ONCE + 10):
        store.run(Take((check(f"k{n}"),)))
    store.close()
    assert len(peer.totals) == MOST_AT_ONCE + 10


def test_what_a_closed_store_could_not_tell_is_logged_and_is_no_lag(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer()
    peer.error = StoreError("gone", reason="unreachable")
    clock = ManualClock(1_000)
    store = ReplicatedStore(MemoryStore(), region="eu", peers={"away": peer}, clock=clock)
    store.run(Take((check("a"),)))
    clock.advance(5)
    assert MEASURES.value("region_lag_seconds", peer="away") == 5
    store.close()
    gc.collect()
    assert MEASURES.value("region_lag_seconds", peer="away") == 0
    assert "closed before away was told all that was used of 1 counters" in caplog.text


def test_a_message_that_is_refused_does_not_hold_up_the_others() -> None:
    class Picky(Peer):
        def run(self, operation: Operation[Any]) -> Any:
            if isinstance(operation, MergeUsage) and operation.checks[0].key == "a":
                raise StoreError("what is this?", reason="refused")
            return super().run(operation)

    peer = Picky()
    store = regional({"us": peer})
    store.run(Take((check("a"),)))
    store.run(Take((Check("g", "b", TokenBucket(500, 1)),)))
    store.exchange()
    assert peer.totals == {"b": 1}


def test_a_store_tells_what_is_left_when_it_is_closed_and_closes_the_others() -> None:
    peer = Peer()
    store = regional({"us": peer})
    store.run(Take((check("a", 4),)))
    store.close()
    store.close()
    assert peer.totals == {"a": 4}
    assert peer.is_closed


def test_a_store_that_nobody_has_any_more_is_collected_and_its_threads_end() -> None:
    peer = Peer()
    store = regional({"nz": peer}, every_ns=MILLISECOND)
    store.run(Take((check("a"),)))
    assert peer.has_heard.wait(PATIENCE)
    (thread,) = [one for one in threading.enumerate() if one.name == "headgate-region-nz"]
    gone = weakref.ref(store)
    del store
    while gone() is not None:  # the thread may be about to let go of it
        gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_process_tells_of_its_own_requests_under_a_name_of_its_own() -> None:
    peer = Peer()
    store = regional({"us": peer})
    store.run(Take((check("a", 4),)))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        store.run(Take((check("b", 2),)))
        store.exchange()
        told = ";".join(f"{one.origin} {peer.totals}" for one in peer.heard)
        os.write(writing, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        origin, _, totals = pipe.read().partition(" ")
    store.exchange()
    assert totals == "{'b': 2}"
    assert peer.totals == {"a": 4}
    assert origin != peer.heard[0].origin


def test_a_region_in_debt_is_spared_the_rest_if_so_wished() -> None:
    clock = ManualClock(1_000)
    peer = Peer()
    peer.outcome = Outcome(allowed=False, remaining=0, retry_after_ns=HOUR, reset_after_ns=HOUR)
    spared = MEASURES.value("region_units_spared")
    store = ReplicatedStore(
        MemoryStore(clock=clock),
        region="eu",
        peers={"us": peer},
        every_ns=HOUR,
        max_debt_ns=MILLISECOND,
        clock=clock,
    )
    store.run(Take((check("a", 10),)))
    clock.advance(5)
    store.exchange()
    assert peer.totals == {"a": 1}
    assert MEASURES.value("region_units_spared") == spared + 9


def test_how_far_a_region_is_behind_can_be_read() -> None:
    clock = ManualClock(1_000)
    peer = Peer()
    store = ReplicatedStore(
        MemoryStore(clock=clock), region="eu", peers={"la": peer}, every_ns=HOUR, clock=clock
    )
    store.run(Take((check("a"),)))
    clock.advance(3)
    assert MEASURES.value("region_lag_seconds", peer="la") == 3
    store.exchange()
    assert MEASURES.value("region_lag_seconds", peer="la") == 0


def test_terms_are_handed_on() -> None:
    class Adopting(Peer):
        terms: Terms | None = None

        def adopt(self, terms: Terms) -> None:
            self.terms = terms

    local = Adopting()
    store = ReplicatedStore(local, region="eu", peers={"us": Peer()}, every_ns=HOUR)
    store.adopt({"g": Accuracy(batch=3)})
    assert local.terms == {"g": Accuracy(batch=3)}
    assert store.grants_leases
    assert "eu" in repr(store)


def test_a_store_takes_after_the_local_one() -> None:
    store = regional({"us": Peer()})
    assert not store.may_fail
    assert ReplicatedStore(Peer(), region="eu", peers={"us": Peer()}).may_fail


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"region": ""}, "'' is not a region"),
        ({"region": "a/b"}, "'a/b' is not a region"),
        ({"region": "us"}, "among its own peers"),
        ({"peers": {}}, "has no peers"),
        ({"every_ns": 1}, "every_ns is 1"),
        ({"max_keys": 0}, "max_keys is 0"),
        ({"max_debt_ns": -1}, "max_debt_ns is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], problem: str) -> None:
    given = {"region": "eu", "peers": {"us": Peer()}} | options
    with pytest.raises(OptionError, match=problem):
        ReplicatedStore(MemoryStore(), **given)  # type: ignore[arg-type] # wrong ones, on purpose


def test_a_region_cannot_be_its_own_peer_nor_have_one_that_cannot_be_told() -> None:
    local = MemoryStore()
    with pytest.raises(OptionError, match="all would count twice"):
        ReplicatedStore(local, region="eu", peers={"us": local})
    deaf = Peer()
    deaf.grants_leases = False
    with pytest.raises(OptionError, match="cannot be told"):
        ReplicatedStore(local, region="eu", peers={"us": deaf})
