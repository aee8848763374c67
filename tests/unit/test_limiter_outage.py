"""The limiters while their store is gone and when it is back: both kinds alike."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate import AsyncRateLimiter, Concurrency, Hit, RateLimiter
from headgate.decision import OnFailure
from headgate.errors import OptionError, StoreError
from headgate.stores.base import group_name
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.failing_fallback import FailingStore, reconcile
from tests.support.unbroken_stores import unbroken, unbroken_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.operations import Operation
    from headgate.testing import ManualClock

HALF = OnFailure(share=Fraction(1, 2))
GROUP = group_name("headgate", 0)


class Awaited(LoopStore):
    """A failing store for an event loop."""

    def __init__(self, store: FailingStore) -> None:
        self.clock: ManualClock = store.clock
        self._store = store

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self._store.run(operation)


class Desk:
    """A limiter with a failing store; its verbs are called, not awaited."""

    def __init__(self, runner: asyncio.Runner | None, limits: Any, on_failure: Any) -> None:
        self.store = FailingStore()
        self._runner = runner
        self.limiter: Any
        if runner is None:
            self.limiter = RateLimiter(
                limits, store=unbroken(self.store), on_store_failure=on_failure
            )
        else:
            self.limiter = AsyncRateLimiter(
                limits, store=unbroken_async(Awaited(self.store)), on_store_failure=on_failure
            )

    def ask(self, verb: str, *given: Any, **named: Any) -> Any:
        return self.do(getattr(self.limiter, verb)(*given, **named))

    def do(self, asked: Any) -> Any:
        return asked if self._runner is None else self._runner.run(_awaited(asked))

    def go(self) -> None:
        self.store.fault = "circuit_open"

    def come_back(self) -> None:
        self.store.fault = None
        self.store.clock.advance(2)
        self.ask("peek", "nobody")
        reconcile(self.limiter._engine.fallback, self.store)

    def used(self, key: str = "key") -> int:
        return self.store.inner.used_in(GROUP, key)


async def _awaited(asked: Any) -> Any:
    return await asked


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Iterator[Any]:
    with asyncio.Runner() as runner:
        given = None if request.param == "sync" else runner
        yield lambda limits, on_failure="fail_open": Desk(given, limits, on_failure)


LIMIT = "10/h fixed_window"


def test_a_share_is_admitted_and_the_rest_refused_until_the_store_is_back(make: Any) -> None:
    desk = make(LIMIT, HALF)
    desk.ask("hit", "key", 2)
    desk.go()
    said = [desk.ask("hit", "key") for _ in range(7)]
    assert [one.source for one in said] == ["fail_open"] * 5 + ["fallback"] * 2
    desk.come_back()
    assert desk.used() == 7
    assert desk.ask("hit", "key").source == "store"


def test_local_is_a_policy_of_limiters_too(make: Any) -> None:
    desk = make("2/h fixed_window", "local")
    desk.go()
    said = [desk.ask("hit", "key") for _ in range(3)]
    assert [(one.allowed, one.source) for one in said] == [
        (True, "local"),
        (True, "local"),
        (False, "local"),
    ]


def test_limits_without_a_counter_have_no_share_and_owe_nothing(make: Any) -> None:
    desk = make(["unlimited", LIMIT], HALF)
    desk.go()
    said = [desk.ask("hit", "key") for _ in range(6)]
    assert [one.allowed for one in said] == [True] * 5 + [False]
    desk.come_back()
    assert desk.store.inner.used_in(group_name("headgate", 1), "key") == 5
    closed = make(["0/s", LIMIT], HALF)
    closed.go()
    decision = closed.ask("hit", "key")
    assert (decision.allowed, decision.retry_after, decision.source) == (False, None, "fallback")
    closed.come_back()
    assert closed.used() == 0


def test_it_escalates(make: Any) -> None:
    desk = make(LIMIT, OnFailure(open_ns=5 * SECOND))
    desk.go()
    assert desk.ask("hit", "key").source == "fail_open"
    desk.store.clock.advance(5)
    assert desk.ask("hit", "key").source == "fail_closed"
    desk.come_back()
    assert desk.ask("hit", "key").source == "store"
    desk.go()
    assert desk.ask("hit", "key").source == "fail_open"


def test_all_verbs_count_together(make: Any) -> None:
    desk = make("20/h fixed_window")
    desk.go()
    desk.ask("hit", "key")
    desk.ask("hit_many", ["key", ("key", 2)])
    desk.ask("charge", "key", 4)
    desk.ask("refund", "key", 1)
    assert desk.ask("peek", "key").remaining == 13
    desk.come_back()
    assert desk.used() == 7


def test_a_part_of_a_cost_is_granted_within_the_share_and_owed_to_the_store(make: Any) -> None:
    desk = make(LIMIT, HALF)
    desk.go()
    part = desk.ask("hit_up_to", "key", 3)
    assert (part.granted, part.decision.allowed, part.decision.source) == (3, True, "fail_open")
    part = desk.ask("hit_up_to", "key", 9)
    assert (part.granted, part.decision.allowed, part.decision.source) == (2, False, "fallback")
    assert part.decision.retry_after == desk.ask("peek", "key", 7).retry_after
    assert desk.ask("hit_up_to", "key", 1).granted == 0
    desk.come_back()
    assert desk.used() == 5
    assert desk.ask("hit_up_to", "key", 9).granted == 5


def test_no_part_is_granted_by_a_limiter_that_fails_closed(make: Any) -> None:
    desk = make(LIMIT, "fail_closed")
    desk.go()
    part = desk.ask("hit_up_to", "key", 3)
    assert (part.granted, bool(part), part.decision.source) == (0, False, "fail_closed")
    desk.come_back()
    assert desk.used() == 0


def test_different_limits_are_all_or_nothing(make: Any) -> None:
    desk = make(LIMIT)
    desk.go()
    hits = [Hit("a", "9/h fixed_window"), Hit("b", "2/h fixed_window")]
    said = [desk.ask("hit_all", hits) for _ in range(3)]
    assert [one.allowed for one in said] == [True, True, False]
    assert [part.remaining for part in said[2].limits] == [7, 0]


def test_a_reservation_made_without_the_store_is_settled_without_it(make: Any) -> None:
    desk = make(LIMIT)
    desk.go()
    reservation = desk.ask("reserve", "key", 6)
    assert reservation
    assert not desk.ask("reserve", "key", 6)
    assert desk.do(reservation.commit(3))
    assert desk.ask("peek", "key").remaining == 7
    desk.come_back()
    assert desk.used() == 3


def test_a_reservation_made_without_the_store_and_settled_with_it_is_charged_once(
    make: Any,
) -> None:
    desk = make(LIMIT)
    desk.go()
    reservation = desk.ask("reserve", "key", 6)
    desk.come_back()
    assert desk.used() == 0
    assert desk.do(reservation.commit(3))
    desk.come_back()
    assert desk.used() == 3


def test_a_cancelled_reservation_costs_nothing_anywhere(make: Any) -> None:
    desk = make(LIMIT)
    desk.go()
    desk.do(desk.ask("reserve", "key", 6).cancel())
    assert desk.ask("peek", "key").remaining == 10
    desk.come_back()
    assert desk.used() == 0


def test_slots_granted_without_the_store_are_renewed_and_given_back(make: Any) -> None:
    desk = make(Concurrency(1, 60))
    desk.go()
    slot = desk.limiter.slot("key")
    assert desk.do(slot.take())
    assert not desk.do(desk.limiter.slot("key").take())
    assert desk.do(slot.renew())
    desk.store.fault = None
    assert desk.do(slot.renew())
    assert desk.do(slot.release())
    desk.go()
    assert desk.do(desk.limiter.slot("key").take())


def test_a_reset_is_one_here_too(make: Any) -> None:
    desk = make(LIMIT)
    desk.go()
    desk.ask("hit", "key", 4)
    with pytest.raises(StoreError):
        desk.ask("reset", "key")
    desk.store.fault = None
    desk.ask("reset", "key")
    desk.come_back()
    assert desk.used() == 0


def test_who_waits_is_told_when_by_the_counter_of_this_process(make: Any) -> None:
    desk = make("1/s gcra", OnFailure(share=Fraction(1, 2)))
    desk.go()
    assert desk.ask("acquire", "key", 1, timeout=5).allowed
    before = desk.store.clock()
    assert desk.ask("acquire", "key", 1, timeout=5).source == "fail_open"
    assert desk.store.clock() - before == 2 * SECOND


def test_one_of_several_takes_may_fail_alone(make: Any) -> None:
    desk = make(LIMIT)
    run = desk.store.run

    def half(operation: Any) -> Any:
        reply = run(operation)
        return (reply[0], StoreError("node down", reason="cluster_down"), *reply[2:])

    desk.store.run = half
    said = desk.ask("hit_many", ["a", "b", "c"])
    assert [one.source for one in said] == ["store", "fail_open", "store"]


def test_a_caller_that_goes_away_gives_back_what_this_process_charged() -> None:
    async def story() -> int:
        store = FailingStore()
        limiter = AsyncRateLimiter(LIMIT, store=unbroken_async(Awaited(store)))
        store.fault = "circuit_open"
        waiting = asyncio.ensure_future(limiter.acquire("key", 4))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return (await limiter.peek("key")).remaining

    assert asyncio.run(story()) == 10


@pytest.mark.parametrize(
    ("returns", "left_there"), [("never", 10), ("before", 10), ("and is told", 10)]
)
def test_who_goes_away_when_the_store_comes_back_leaves_no_charge_but_what_it_was_told(
    returns: str, left_there: int
) -> None:
    """What was told already stays charged there, which is the safe side; and nothing is given back
    there that was charged by somebody else."""

    async def story() -> tuple[int, int]:
        store = FailingStore()
        limiter = AsyncRateLimiter(LIMIT, store=unbroken_async(Awaited(store)))
        store.fault = "circuit_open"
        granted = await limiter.reserve("key", 4)
        assert granted.decision.source == "fail_open"
        if returns != "never":
            store.fault = None
            store.clock.advance(2)
            await limiter.peek("nobody")
        if returns == "and is told":
            reconcile(limiter._engine.fallback)
        await granted.cancel()
        store.fault = None
        store.clock.advance(2)
        await limiter.peek("nobody")
        reconcile(limiter._engine.fallback)
        left_here = 10 - limiter._engine.fallback.local.used_in(GROUP, "key")
        return left_here, 10 - store.inner.used_in(GROUP, "key")

    assert asyncio.run(story()) == (10, left_there)


def test_two_limiters_on_one_store_share_what_this_process_may_admit() -> None:
    store = unbroken(FailingStore())
    one, other = (RateLimiter(LIMIT, store=store, on_store_failure=HALF) for _ in range(2))
    one.store.fault = "circuit_open"  # type: ignore[attr-defined]  # it is a FailingStore
    admitted = [limiter.hit("key").allowed for limiter in (one, other) * 5]
    assert sum(admitted) == 5


@pytest.mark.parametrize("given", ["open", "FAIL_OPEN", ""])
def test_a_policy_that_is_none_is_an_error(given: Any) -> None:
    with pytest.raises(OptionError, match="on_store_failure"):
        RateLimiter("1/s", on_store_failure=given)
