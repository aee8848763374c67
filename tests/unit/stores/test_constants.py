"""Limits without a counter on a server that cannot be reached: it is not asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.errors import StoreError
from headgate.limits import DenyAll, FixedWindow, Unlimited
from headgate.stores.operations import (
    Check,
    Hold,
    Operation,
    Reset,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
    divide,
    is_constant,
)

NOWHERE = "redis://127.0.0.1:1/0"
OPEN, SHUT = Check("g", "key", Unlimited(), 3), Check("g", "key", DenyAll(), 3)
TEN = Check("h", "key", FixedWindow(10, 60), 3)


@pytest.mark.parametrize(("limits", "is_allowed"), [("unlimited", True), ("0/s; unlimited", False)])
def test_a_server_that_is_gone_is_not_missed(limits: str, *, is_allowed: bool) -> None:
    with RateLimiter(limits, store=NOWHERE, name="n", on_store_failure="fail_closed") as limiter:
        said = [limiter.hit("key"), limiter.peek("key"), *limiter.hit_many(["key"])]
        said += [limiter.charge("key", 2), limiter.refund("key", 1), limiter.acquire("key")]
        said += [limiter.reserve("key", 2).decision, limiter.hit_up_to("key", 2).decision]
    assert {(one.allowed, one.source) for one in said[:-1]} == {(is_allowed, "store")}
    assert said[-1].source == "store"


def test_nor_in_an_event_loop() -> None:
    async def main() -> None:
        async with AsyncRateLimiter("unlimited", store=NOWHERE, name="n") as limiter:
            assert (await limiter.hit("key")).source == "store"
            assert await (await limiter.reserve("key", 2)).commit(1)
            assert (await limiter.store.submit(Take((OPEN,))))[0].allowed

    asyncio.run(main())


def test_only_what_has_a_counter_is_left_for_the_store() -> None:
    left: dict[Operation[Any], Operation[Any]] = {
        Take((OPEN, TEN)): Take((TEN,)),
        Take((SHUT, TEN)): Take((TEN,), consume=False),
        Hold((TEN, SHUT), "name", 1): Take((TEN,), consume=False),
        Hold((TEN, OPEN), "name", 1): Hold((TEN,), "name", 1),
        Settle((TEN, OPEN), "name", charge_lapsed=True): Settle((TEN,), "name", charge_lapsed=True),
        TakeUpTo((OPEN, TEN)): TakeUpTo((TEN,)),
        TakeUpTo((TEN, SHUT)): Take((TEN,), consume=False),
        TakeEach((Take((OPEN,)), Take((TEN,)))): TakeEach((Take((TEN,)),)),
    }
    for operation, rest in left.items():
        divided = divide(operation)
        assert divided is not None
        assert divided.rest == rest
        assert not is_constant(operation)
    assert divide(Take((TEN,))) is None
    assert divide(TakeEach((Take((TEN,)),))) is None
    assert divide(Reset((OPEN,))) is None, "what was counted before is forgotten"
    assert is_constant(TakeEach((Take((OPEN,)), Take((SHUT,)))))


def test_of_several_takes_one_that_failed_keeps_its_error() -> None:
    error = StoreError("gone")
    divided = divide(TakeEach((Take((OPEN, TEN)), Take((SHUT,)), Take((TEN,)))))
    assert divided is not None
    first, second, third = divided.join((error, error))
    assert (first, third) == (error, error)
    assert not second[0].allowed
