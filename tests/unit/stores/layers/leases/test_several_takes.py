"""Several takes in one operation: each by itself, and borrowed for when it is hot."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest

from headgate.errors import StoreError
from headgate.limits import Concurrency, FixedWindow, TokenBucket
from headgate.stores.base import Store
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.operations import (
    Check,
    GrantLease,
    Hold,
    Operation,
    ReleaseSlot,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.lease_remote import EXACT, TERMS, Remote, allowed, check, take, used, warm

R = TypeVar("R")


@pytest.fixture
def remote() -> Remote:
    return Remote(ManualClock(1_000.0))


@pytest.fixture
def store(remote: Remote) -> LeasedStore:
    store = LeasedStore(remote, keeps=False)
    store.adopt(TERMS)
    return store


def test_each_take_of_several_is_by_itself_in_one_round_trip(
    store: LeasedStore, remote: Remote
) -> None:
    warm(store)
    remote.asked.clear()
    takes = (Take((check(),)), Take((check("exact"),)), Take((check("exact", 5), check())))
    replies = store.run(TakeEach(takes))
    assert [allowed(reply) for reply in replies] == [[True], [True], [True, True]]
    assert len(remote.asked) == 1
    assert used(remote, "exact") == 6


def test_takes_that_failed_put_back_what_they_had(store: LeasedStore, remote: Remote) -> None:
    warm(store)
    held = store._desk.units_held()
    remote.is_gone = True
    with pytest.raises(StoreError):
        store.run(TakeEach((Take((check("exact"), check())),)))
    assert store._desk.units_held() == held


def test_what_is_hot_among_several_takes_is_borrowed_when_nobody_waits(
    store: LeasedStore, remote: Remote
) -> None:
    both = TakeEach((Take((check(),)), Take((check("too"),))))
    for _ in range(20):
        store.run(both)
    assert not any(isinstance(one, GrantLease) for one in remote.asked)
    store.keep()
    remote.asked.clear()
    for _ in range(5):
        replies = store.run(both)
        assert [allowed(reply) for reply in replies] == [[True], [True]]
    assert remote.asked == []
    store.close()
    assert used(remote) == 25


def test_several_takes_that_are_refused_borrow_nothing(store: LeasedStore, remote: Remote) -> None:
    full = Check("exact", "k", EXACT, 1_000)
    assert take(store, full) == [True]
    for _ in range(50):
        (reply,) = store.run(TakeEach((Take((check("exact"), check())),)))
        assert allowed(reply) == [False, True]
    store.keep()
    assert not any(isinstance(one, GrantLease) for one in remote.asked)
    assert used(remote) == 0


def test_what_is_refused_here_beside_an_exact_check_charges_nothing(
    store: LeasedStore, remote: Remote
) -> None:
    limit = TokenBucket(20, 0.001)
    while take(store, Check("leased", "k", limit)) == [True]:
        pass
    before = used(remote)
    both = Take((Check("leased", "k", limit), check("exact")))
    (each,) = store.run(TakeEach((both,)))
    assert allowed(each) == allowed(store.run(both)) == [False, True]
    assert used(remote) == before
    assert used(remote, "exact") == 0


def test_a_slot_that_was_refused_may_be_had_as_soon_as_one_is_given_back(
    store: LeasedStore,
) -> None:
    slot = (Check("leased", "slots", Concurrency(1, 60)),)
    assert store.run(Take(slot, lease="a"))[0].allowed
    assert not store.run(Take(slot, lease="b"))[0].allowed
    assert store.run(ReleaseSlot(slot, "a"))
    assert store.run(Take(slot, lease="b"))[0].allowed


def test_a_hold_that_is_cancelled_ends_what_was_refused_because_of_it(store: LeasedStore) -> None:
    limit = FixedWindow(10, 3_600)
    assert store.run(Hold((Check("leased", "k", limit, 10),), "h", SECOND))[0].allowed
    assert take(store, Check("leased", "k", limit)) == [False]
    assert store.run(Settle((Check("leased", "k", limit, 0),), "h", charge_lapsed=False))
    assert take(store, Check("leased", "k", limit)) == [True]


class Near(Store):
    """A `Remote` for loops."""

    grants_leases = True

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.is_asked_to_lend = asyncio.Event()

    async def arun(self, operation: Operation[R]) -> R:
        if isinstance(operation, GrantLease):
            self.is_asked_to_lend.set()
        return self.remote.run(operation)


def test_a_loop_borrows_for_several_takes_in_the_background(remote: Remote) -> None:
    async def main() -> list[Operation[Any]]:
        near = Near(remote)
        store = LeasedStore(near, clock=remote.clock)
        store.adopt(TERMS)
        for _ in range(20):
            await store.arun(TakeEach((Take((check(),)),)))
        await near.is_asked_to_lend.wait()
        await asyncio.sleep(0)
        remote.asked.clear()
        for _ in range(3):
            await store.arun(TakeEach((Take((check(),)),)))
        asked = list(remote.asked)
        await store.aclose()
        return asked

    assert asyncio.run(main()) == []


def test_units_that_come_when_the_terms_have_changed_go_back(
    store: LeasedStore, remote: Remote
) -> None:
    warm(store)
    while store._desk.units_held():
        take(store, check())
    before = used(remote)
    lend = store._desk.book.ask(check(), 0)
    assert lend is not None
    lent = remote.run(lend)
    assert lent.amount > 0
    store.adopt({})
    store._desk.settle(lend, lent, 0)
    store.keep()
    assert used(remote) == before + 1


def test_what_is_due_is_done_though_the_loop_is_always_late(remote: Remote) -> None:
    """An alarm that is overdue is not put off by those who come before it rings."""

    async def main() -> None:
        store = LeasedStore(Near(remote), clock=remote.clock)
        store.adopt(TERMS)
        for _ in range(20):
            await store.arun(TakeEach((Take((check(),)),)))
        loop = asyncio.get_running_loop()
        for _ in range(3):
            late = loop.time() + 0.002
            while loop.time() < late:
                pass
            await store.arun(TakeEach((Take((check(cost=20),)),)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert any(isinstance(one, GrantLease) for one in remote.asked)
        await store.aclose()

    asyncio.run(main())
