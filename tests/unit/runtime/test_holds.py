"""Reservations and slots, as a caller holds them."""

import asyncio
from typing import Any

import pytest

from headgate import (
    AsyncRateLimiter,
    Concurrency,
    CostError,
    LimitError,
    MemoryStore,
    RateLimiter,
    SettledError,
)
from headgate.testing import ManualClock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=ManualClock(3_600))


@pytest.fixture
def limiter(store: MemoryStore) -> RateLimiter:
    return RateLimiter("10/h", store=store)


@pytest.fixture
def aio(store: MemoryStore) -> AsyncRateLimiter:
    return AsyncRateLimiter("10/h", store=store)


def test_a_reservation_is_true_when_it_was_granted(limiter: RateLimiter) -> None:
    granted, refused = limiter.reserve("key", 6), limiter.reserve("key", 6)
    assert (bool(granted), granted.allowed, granted.is_open) == (True, True, True)
    assert (bool(refused), refused.allowed, refused.is_open) == (False, False, False)
    assert refused.decision.remaining == 4


def test_a_reservation_says_what_it_is_about(limiter: RateLimiter) -> None:
    reservation = limiter.reserve("key", 6)
    assert (reservation.key, reservation.amount) == ("key", 6)
    assert repr(reservation) == "<Reservation of 6 for 'key': open>"
    reservation.commit()
    assert repr(reservation) == "<Reservation of 6 for 'key': settled>"
    assert repr(limiter.reserve("key", 6)) == "<Reservation of 6 for 'key': denied>"


def test_a_block_that_ends_well_commits_the_reserved_amount(limiter: RateLimiter) -> None:
    with limiter.reserve("key", 6) as reservation:
        assert limiter.peek("key").remaining == 4
    assert not reservation.is_open
    assert limiter.peek("key").remaining == 4
    assert limiter.refund("key", 6).remaining == 10


def test_a_block_that_raises_cancels(limiter: RateLimiter) -> None:
    with pytest.raises(ZeroDivisionError), limiter.reserve("key", 6):
        raise ZeroDivisionError
    assert limiter.peek("key").remaining == 10


def test_a_reservation_settled_inside_its_block_is_left_alone(limiter: RateLimiter) -> None:
    with limiter.reserve("key", 6) as reservation:
        reservation.commit(2)
    assert limiter.peek("key").remaining == 8
    with pytest.raises(ZeroDivisionError), limiter.reserve("key", 6) as reservation:
        raise ZeroDivisionError(reservation.commit(3))
    assert limiter.peek("key").remaining == 5


def test_a_refused_reservation_may_be_entered_and_does_nothing(limiter: RateLimiter) -> None:
    with limiter.reserve("key", 11) as reservation:
        assert not reservation
    assert limiter.peek("key").remaining == 10


@pytest.mark.parametrize("first", ["commit", "cancel"])
@pytest.mark.parametrize("second", ["commit", "cancel"])
def test_settling_twice_is_an_error(limiter: RateLimiter, first: str, second: str) -> None:
    reservation = limiter.reserve("key", 6)
    getattr(reservation, first)()
    before = limiter.peek("key")
    with pytest.raises(SettledError, match="settled already"):
        getattr(reservation, second)()
    assert limiter.peek("key") == before


def test_settling_what_was_refused_is_an_error(limiter: RateLimiter) -> None:
    with pytest.raises(SettledError, match="denied"):
        limiter.reserve("key", 11).commit()


@pytest.mark.parametrize("actual", [-1, 1.5, True, "3", float("nan")])
def test_a_bad_actual_amount_settles_nothing(limiter: RateLimiter, actual: Any) -> None:
    reservation = limiter.reserve("key", 6)
    with pytest.raises(CostError, match="actual"):
        reservation.commit(actual)
    assert reservation.is_open
    assert reservation.commit(2)
    assert limiter.peek("key").remaining == 8


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), "60"])
def test_a_bad_ttl_is_a_value_error(limiter: RateLimiter, ttl: Any) -> None:
    with pytest.raises(LimitError, match="ttl"):
        limiter.reserve("key", 1, ttl=ttl)


def test_reserving_nothing_changes_nothing(limiter: RateLimiter) -> None:
    before = limiter.peek("key")
    assert limiter.reserve("key", 0)
    assert limiter.peek("key") == before


def test_an_async_block_commits_or_cancels(aio: AsyncRateLimiter, limiter: RateLimiter) -> None:
    async def main() -> None:
        async with await aio.reserve("key", 6) as reservation:
            assert reservation
        assert limiter.peek("key").remaining == 4
        await aio.reset("key")
        with pytest.raises(ZeroDivisionError):
            async with await aio.reserve("key", 6):
                raise ZeroDivisionError
        assert limiter.peek("key").remaining == 10
        async with await aio.reserve("key", 6) as reservation:
            await reservation.commit(1)
        assert limiter.peek("key").remaining == 9
        async with await aio.reserve("key", 11) as reservation:
            assert not reservation

    asyncio.run(main())


def test_an_async_reservation_settles_once(aio: AsyncRateLimiter) -> None:
    async def main() -> None:
        reservation = await aio.reserve("key", 6)
        with pytest.raises(CostError):
            await reservation.commit(-1)
        assert await reservation.commit(1)
        with pytest.raises(SettledError):
            await reservation.cancel()

    asyncio.run(main())


def test_a_cancelled_task_cancels_its_reservation(
    aio: AsyncRateLimiter, limiter: RateLimiter
) -> None:
    async def main() -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with await aio.reserve("key", 6):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        assert limiter.peek("key").remaining == 4
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert limiter.peek("key").remaining == 10


def test_a_slot_is_true_while_it_is_held() -> None:
    limiter = RateLimiter(Concurrency(1, 60), clock=ManualClock())
    slot = limiter.slot("key")
    assert not slot
    with slot:
        assert slot
        assert repr(slot) == "<Slot for 'key': held>"
        with limiter.slot("key") as other:
            assert not other
            assert other.decision.retry_after == 1.0
    assert not slot
    assert repr(slot) == "<Slot for 'key': not held>"
    assert limiter.slot("key").take()


def test_a_slot_is_given_back_when_the_block_raises() -> None:
    limiter = RateLimiter(Concurrency(1, 60), clock=ManualClock())
    with pytest.raises(ZeroDivisionError), limiter.slot("key"):
        raise ZeroDivisionError
    assert limiter.peek("key").remaining == 1


def test_a_slot_is_asked_for_once() -> None:
    slot = RateLimiter(Concurrency(5, 60), clock=ManualClock()).slot("key")
    with pytest.raises(SettledError, match="enter it first"):
        _ = slot.decision
    slot.take()
    with pytest.raises(SettledError, match="make a new one"):
        slot.take()


def test_a_slot_that_was_never_taken_cannot_be_released_or_renewed() -> None:
    limiter = RateLimiter(Concurrency(1, 60), clock=ManualClock())
    limiter.slot("key").take()
    refused = limiter.slot("key")
    refused.take()
    for slot in (limiter.slot("key"), refused):
        assert not slot.release()
        assert not slot.renew()
    assert limiter.peek("key").remaining == 0


def test_a_slot_that_lapsed_is_not_held_any_more() -> None:
    clock = ManualClock()
    limiter = RateLimiter(Concurrency(1, 60), clock=clock)
    slot = limiter.slot("key")
    slot.take()
    clock.advance(60)
    assert not slot.renew()
    assert not slot


def test_an_async_slot_does_the_same() -> None:
    clock = ManualClock()

    async def main() -> None:
        limiter = AsyncRateLimiter(Concurrency(1, 60), clock=clock)
        async with limiter.slot("key") as slot:
            assert slot
            clock.advance(59)
            assert await slot.renew()
            async with limiter.slot("key") as other:
                assert not other
        assert not slot
        again = limiter.slot("key")
        assert await again.take()
        with pytest.raises(SettledError):
            await again.take()
        assert await again.release()
        assert not await again.release()

    asyncio.run(main())


def test_what_is_recorded_beside_slots_concerns_the_rate_alone_or_nothing() -> None:
    limiter = RateLimiter(["10/h", Concurrency(2, 60)], clock=ManualClock())
    with limiter.slot("key"):
        before = limiter.peek("key").limits
        try:
            limiter.charge("key", 3)
        except TypeError:
            assert limiter.peek("key").limits == before
        else:
            assert [part.remaining for part in limiter.peek("key").limits] == [6, 1]
