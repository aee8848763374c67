"""What the limiters say when their store cannot."""

import asyncio
from typing import Any, TypeVar

import pytest

from headgate import (
    AsyncRateLimiter,
    Concurrency,
    Decision,
    Hit,
    MemoryStore,
    RateLimiter,
    Store,
    StoreError,
)
from headgate.decision import FailurePolicy
from headgate.runtime.effects import Wait
from headgate.stores.operations import Operation
from headgate.testing import ManualClock
from tests.support.async_stores import LoopStore
from tests.support.unbroken_stores import unbroken

R = TypeVar("R")


class FailingStore(Store):
    """A store that can be down."""

    def __init__(self) -> None:
        self.store = MemoryStore(clock=ManualClock(3_600))
        self.is_down = True

    def run(self, operation: Operation[R]) -> R:
        if self.is_down:
            raise StoreError("down")
        return self.store.run(operation)


class FailingAsyncStore(LoopStore):
    """The same for an event loop."""

    def __init__(self) -> None:
        self.store = MemoryStore(clock=ManualClock(3_600))
        self.is_down = True

    async def arun(self, operation: Operation[R]) -> R:
        if self.is_down:
            raise StoreError("down")
        return await self.store.arun(operation)


def decisions(limiter: RateLimiter) -> list[Decision]:
    """What each verb says."""
    return [
        limiter.hit("key"),
        limiter.peek("key"),
        *limiter.hit_many(["key", ("key", 3)]),
        limiter.reserve("key", 2).decision,
        limiter.charge("key", 4),
        limiter.refund("key", 1),
        limiter.hit_all([Hit("key", "1/s"), Hit("other", "2/s")]),
    ]


async def async_decisions(limiter: AsyncRateLimiter) -> list[Decision]:
    return [
        await limiter.hit("key"),
        await limiter.peek("key"),
        *await limiter.hit_many(["key", ("key", 3)]),
        (await limiter.reserve("key", 2)).decision,
        await limiter.charge("key", 4),
        await limiter.refund("key", 1),
        await limiter.hit_all([Hit("key", "1/s"), Hit("other", "2/s")]),
    ]


def without_store(limits: Any, policy: FailurePolicy) -> list[list[Decision]]:
    plain = RateLimiter(limits, store=FailingStore(), on_store_failure=policy)
    aio = AsyncRateLimiter(limits, store=FailingAsyncStore(), on_store_failure=policy)
    return [decisions(plain), asyncio.run(async_decisions(aio))]


@pytest.mark.parametrize("limits", ["20/m", "20/m; 100/h fixed_window"])
def test_fail_open_allows_and_says_that_no_store_did(limits: str) -> None:
    for said in without_store(limits, "fail_open"):
        assert [d.allowed for d in said] == [True] * 8
        assert {d.source for d in said} == {"fail_open"}
        assert {d.retry_after for d in said} == {0}


@pytest.mark.parametrize("limits", ["10/m", "10/m; 100/h fixed_window"])
def test_fail_closed_refuses_says_that_no_store_did_and_when_to_retry(limits: str) -> None:
    for said in without_store(limits, "fail_closed"):
        assert [d.allowed for d in said] == [False] * 8
        assert {d.source for d in said} == {"fail_closed"}
        assert {d.remaining for d in said} == {0}
        assert {d.retry_after for d in said} == {1}


def test_open_is_the_policy_unless_another_is_said() -> None:
    assert RateLimiter("10/m", store=FailingStore()).hit("key").source == "fail_open"


def test_the_decision_names_the_key_and_every_limit() -> None:
    decision = RateLimiter("10/m; 5/m gcra", store=FailingStore()).hit("key")
    assert decision.key == "key"
    assert [str(part.limit) for part in decision.limits] == ["10/m", "5/m gcra"]
    assert decision.remaining == 4


@pytest.mark.parametrize("policy", ["fail_open", "fail_closed"])
def test_reset_raises_because_nothing_can_stand_in_for_it(policy: FailurePolicy) -> None:
    with pytest.raises(StoreError):
        RateLimiter("10/m", store=FailingStore(), on_store_failure=policy).reset("key")
    aio = AsyncRateLimiter("10/m", store=FailingAsyncStore(), on_store_failure=policy)
    with pytest.raises(StoreError):
        asyncio.run(aio.reset("key"))


def test_a_settlement_that_is_lost_is_no_error_when_open() -> None:
    store = FailingStore()
    limiter = RateLimiter("10/m", store=store)
    store.is_down = False
    reservation = limiter.reserve("key", 2)
    store.is_down = True
    assert not reservation.commit(1)
    assert not reservation.is_open


def test_a_settlement_that_is_lost_is_an_error_when_closed() -> None:
    store = FailingStore()
    limiter = RateLimiter("10/m", store=store, on_store_failure="fail_closed")
    store.is_down = False
    reservation = limiter.reserve("key", 2)
    store.is_down = True
    with pytest.raises(StoreError):
        reservation.commit(1)


def test_async_settlements_follow_the_policy_too() -> None:
    async def settle(policy: FailurePolicy) -> bool:
        store = FailingAsyncStore()
        limiter = AsyncRateLimiter("10/m", store=store, on_store_failure=policy)
        store.is_down = False
        reservation = await limiter.reserve("key", 2)
        store.is_down = True
        return await reservation.commit(1)

    assert not asyncio.run(settle("fail_open"))
    with pytest.raises(StoreError):
        asyncio.run(settle("fail_closed"))


def test_slots_follow_the_policy() -> None:
    limits = Concurrency(1, 60)
    with RateLimiter(limits, store=FailingStore()).slot("key") as slot:
        assert slot.decision.source == "fail_open"
        assert slot
    closed = RateLimiter(limits, store=FailingStore(), on_store_failure="fail_closed")
    with closed.slot("key") as slot:
        assert slot.decision.source == "fail_closed"
        assert not slot


def test_a_slot_is_given_back_though_it_could_not_be_renewed_in_between() -> None:
    store = FailingStore()
    store.is_down = False
    limiter = RateLimiter(Concurrency(1, 60), store=store)
    with limiter.slot("key") as slot:
        store.is_down = True
        slot.renew()
        store.is_down = False
    assert limiter.peek("key").remaining == 1


def test_acquire_goes_on_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FailingStore()
    limiter = RateLimiter("10/m", store=unbroken(store), on_store_failure="fail_closed")
    waited: list[float | None] = []

    def wait(effect: Wait) -> bool:
        waited.append(effect.seconds)
        store.is_down = len(waited) < 3
        return False

    monkeypatch.setattr(Wait, "perform", wait)
    assert limiter.acquire("key").source == "store"
    assert waited == [1, 1, 1]


def test_errors_that_are_not_the_stores_are_not_hidden() -> None:
    class Buggy(Store):
        def run(self, operation: Operation[R]) -> R:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RateLimiter("10/m", store=Buggy()).hit("key")
