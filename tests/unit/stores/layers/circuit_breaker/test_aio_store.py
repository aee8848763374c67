"""The guarded store for event loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import AsyncRateLimiter
from headgate.errors import StoreError
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, TakeEach
from headgate.units import SECOND
from tests.support.failing_stores import LIMIT, PLACE, AsyncFailing, AsyncGuarded, taking


async def asked(one: AsyncGuarded, key: str = "key") -> str | None:
    """Why the short cut fails; None if it does not."""
    ask = one.store.asker(PLACE)
    assert ask is not None
    try:
        await ask(key, 1)
    except StoreError as error:
        return error.reason
    return None


class TestWhileAllIsWell:
    def test_every_way_leads_to_the_store(self) -> None:
        async def main() -> None:
            one = AsyncGuarded()
            assert await asked(one) is None
            assert (await one.store.arun(taking()))[0].remaining == 999_998
            assert one.trouble.calls == 2

        asyncio.run(main())

    def test_a_store_that_decides_at_once_still_does(self) -> None:
        async def main() -> None:
            store = CircuitBreakerStore(MemoryStore())
            hit = store.hitter(PLACE)
            assert hit is not None
            assert hit("key", 1).remaining == 999_999
            assert store.asker(PLACE) is None
            assert not store.waits
            quick = store.take_quickly((Check("g", "key", LIMIT),))
            assert quick is None or quick[0].allowed

        asyncio.run(main())

    def test_what_is_wrapped_is_passed_on(self) -> None:
        async def main() -> None:
            failing = AsyncFailing()
            store = CircuitBreakerStore(failing)
            assert store.store is failing
            assert (store.waits, store.grants_leases) == (failing.waits, failing.grants_leases)
            store.adopt({})
            await store.aclose()
            assert (failing.adopted, failing.is_closed) == ({}, True)
            assert "AsyncFailing" in repr(store)

        asyncio.run(main())

    def test_a_limiter_works_on_it(self) -> None:
        async def main() -> None:
            async with AsyncRateLimiter("2/h", store=AsyncGuarded().store) as limiter:
                assert [(await limiter.hit("k")).allowed for _ in range(3)] == [True, True, False]

        asyncio.run(main())


class TestOutages:
    def test_a_store_that_fails_is_left_alone_and_recovers(self) -> None:
        async def main() -> None:
            one = AsyncGuarded()
            await one.open()
            calls = one.trouble.calls
            for _ in range(10):
                assert await one.reason() == await asked(one) == "circuit_open"
            assert one.trouble.calls == calls
            one.trouble.heal()
            one.watch.now_ns += 10 * SECOND
            assert await asked(one) is None
            assert one.changes[-1].after == "ramping"
            one.watch.now_ns += 10 * SECOND
            assert await one.reason() is None
            assert one.store.since_ns is None
            assert not one.store.is_open

        asyncio.run(main())

    @pytest.mark.parametrize("short", [True, False])
    def test_a_probe_that_is_cancelled_leaves_nothing_behind(self, *, short: bool) -> None:
        async def main() -> None:
            one = AsyncGuarded()
            await one.open()
            one.trouble.heal()
            one.watch.now_ns += 10 * SECOND
            one.failing.hangs = asyncio.Event()
            ask: Any = asked(one) if short else one.reason()
            probe = asyncio.ensure_future(ask)
            await asyncio.sleep(0)
            assert await one.reason() == "circuit_open"
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
            one.failing.hangs = None
            assert await one.reason() is None

        asyncio.run(main())

    def test_a_probe_whose_loop_has_ended_leaves_nothing_behind(self) -> None:
        one = AsyncGuarded()

        async def hang() -> None:
            await one.open()
            one.watch.now_ns += 10 * SECOND
            one.failing.hangs = asyncio.Event()
            asyncio.ensure_future(one.reason())  # noqa: RUF006 (it is to be lost)
            await asyncio.sleep(0)

        asyncio.run(hang())
        one.failing.hangs = None
        one.trouble.heal()
        assert asyncio.run(one.reason()) is None

    def test_calls_of_one_tick_that_fail_are_one_incident(self) -> None:
        async def main() -> None:
            one = AsyncGuarded()
            one.failing.hangs = asyncio.Event()
            one.trouble.fail("unreachable")
            calls = [asyncio.ensure_future(asked(one)) for _ in range(100)]
            await asyncio.sleep(0)
            one.failing.hangs.set()
            assert set(await asyncio.gather(*calls)) == {"unreachable"}
            assert not one.store.is_open

        asyncio.run(main())


class TestParts:
    def test_a_part_that_fails_fails_its_own_keys_alone(self) -> None:
        async def main() -> None:
            one = AsyncGuarded(has_parts=True)
            one.trouble.fail()
            one.trouble.spares = frozenset({"b"})
            while not one.store.is_open:
                assert await asked(one, "a") == "timeout"
            assert await asked(one, "a") == "circuit_open"
            assert await asked(one, "b") is None
            one.trouble.heal()
            first, second = await one.store.arun(TakeEach((taking("a"), taking("b"))))
            assert isinstance(first, StoreError)
            assert not isinstance(second, StoreError)

        asyncio.run(main())
