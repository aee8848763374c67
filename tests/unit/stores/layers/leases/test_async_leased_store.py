"""The store that borrows: what callers in an event loop see of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headgate.errors import StoreError
from headgate.limits import Accuracy, FixedWindow, TokenBucket
from headgate.stores.base import Store
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Charge, Check, GrantLease, Operation, Reset, Take, TakeEach
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from headgate.limits import Limit
    from headgate.stores.base import Asker
    from headgate.stores.operations import Outcomes

R = TypeVar("R")

LIMIT = TokenBucket(1_000, 1)
EXACT = FixedWindow(1_000, 3_600)
TERMS = {"leased": Accuracy(batch=10), "too": Accuracy(batch=10)}


class Remote(Store):
    """A store that has to be waited for, counts how often, and fails when told to."""

    grants_leases = True

    def __init__(self) -> None:
        self.clock = ManualClock(1_000.0)
        self.store = MemoryStore(clock=self.clock)
        self.asked: list[Operation[Any]] = []
        self.is_gone = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def arun(self, operation: Operation[R]) -> R:
        self.asked.append(operation)
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.is_gone:
            raise StoreError("it is gone")
        return self.store.run(operation)

    def asker(self, places: Sequence[tuple[str, Limit]]) -> Asker | None:
        return None


def run(test: Callable[[LeasedStore, Remote], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        remote = Remote()
        store = LeasedStore(remote, keeps=False)
        store.adopt(TERMS)
        await test(store, remote)

    asyncio.run(main())


def check(group: str = "leased", cost: int = 1) -> Check:
    return Check(group, "k", EXACT if group == "exact" else LIMIT, cost)


async def take(store: Store, *checks: Check) -> list[bool]:
    return [one.allowed for one in await store.arun(Take(checks))]


async def warm(store: LeasedStore, group: str = "leased") -> None:
    before = store._desk.units_held()
    for _ in range(50):
        assert await take(store, check(group)) == [True]
        if store._desk.units_held() > before:
            return
    raise AssertionError


def allowed(reply: Outcomes | StoreError) -> list[bool]:
    assert not isinstance(reply, StoreError)
    return [one.allowed for one in reply]


def used(remote: Remote, group: str = "leased") -> int:
    return remote.store.used_in(group, "k")


def test_hits_on_a_hot_key_ask_once_in_a_batch() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        ask = store.asker((("leased", LIMIT),))
        assert ask is not None
        for _ in range(50):
            await ask("k", 1)
        remote.asked.clear()
        decisions = [await ask("k", 1) for _ in range(220)]
        assert all(decisions)
        assert len(remote.asked) == 20
        assert {decision.source for decision in decisions} == {"lease", "store"}
        await store.aclose()
        assert used(remote) == 270

    run(test)


def test_what_is_known_here_is_told_without_waiting() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        assert store.take_quickly((check(),)) is None
        await warm(store)
        await warm(store, "too")
        remote.asked.clear()
        taken = store.take_quickly((check("too"), check()))
        assert taken is not None
        assert [decision.source for decision in taken] == ["lease", "lease"]
        assert store.take_quickly((check(), check("exact"))) is None
        assert remote.asked == []
        assert store.hitter((("leased", LIMIT),)) is None

    run(test)


def test_tasks_that_find_a_loan_used_up_make_one_request() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        await warm(store)
        while store._desk.units_held():
            await take(store, check())
        remote.asked.clear()
        remote.gate.clear()
        tasks = [asyncio.ensure_future(take(store, check())) for _ in range(8)]
        await asyncio.sleep(0)
        remote.gate.set()
        assert await asyncio.gather(*tasks) == [[True]] * 8
        assert len(remote.asked) == 1

    run(test)


def test_who_asks_may_be_cancelled_without_harm_to_those_who_wait() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        await warm(store)
        while store._desk.units_held():
            await take(store, check())
        remote.asked.clear()
        remote.gate.clear()
        first = asyncio.ensure_future(take(store, check()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(take(store, check())) for _ in range(4)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        remote.gate.set()
        assert await asyncio.gather(*others) == [[True]] * 4
        assert first.cancelled()
        assert len(remote.asked) == 1
        assert store._desk.units_held() > 0

    run(test)


def test_those_who_wait_hear_of_a_failure() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        await warm(store)
        while store._desk.units_held():
            await take(store, check())
        remote.asked.clear()
        remote.gate.clear()
        tasks = [asyncio.ensure_future(take(store, check())) for _ in range(3)]
        await asyncio.sleep(0)
        remote.is_gone = True
        remote.gate.set()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(reply) for reply in replies] == [StoreError] * 3
        assert len(remote.asked) == 1

    run(test)


def test_a_cancelled_take_of_several_puts_back_what_it_had() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        await warm(store)
        held = store._desk.units_held()
        remote.gate.clear()
        task = asyncio.ensure_future(take(store, check(), check("exact")))
        await asyncio.sleep(0)
        assert store._desk.units_held() == held - 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store._desk.units_held() == held

    run(test)


def test_several_checks_are_all_or_nothing() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        await warm(store)
        remote.store.run(Charge((check("exact", 1_000),)))
        held = store._desk.units_held()
        assert await take(store, check(), check("exact")) == [True, False]
        assert store._desk.units_held() == held
        replies = await store.arun(TakeEach((Take((check(),)), Take((check(), check("exact"))))))
        assert [allowed(reply) for reply in replies] == [[True], [True, False]]
        assert store._desk.units_held() == held - 1

    run(test)


def test_a_reset_forgets_what_was_lent() -> None:
    async def test(store: LeasedStore, _: Remote) -> None:
        await warm(store)
        await store.arun(Reset((check(),)))
        assert store._desk.units_held() == 0

    run(test)


def test_a_licence_is_told_in_the_background() -> None:
    async def test(store: LeasedStore, remote: Remote) -> None:
        store.adopt({"leased": Accuracy(batch=100, sync_ns=50 * MILLISECOND)})
        await warm(store)
        for _ in range(5):
            remote.clock.advance_ns(10 * MILLISECOND)
            await take(store, check())
        remote.clock.advance_ns(50 * MILLISECOND)
        remote.asked.clear()
        await store.keep()
        (told,) = remote.asked
        assert isinstance(told, GrantLease)
        assert not told.is_charged
        assert told.used > told.told
        await store.aclose()

    run(test)


def test_what_is_due_is_done_by_an_alarm_of_the_loop() -> None:
    async def main() -> None:
        remote = Remote()
        store = LeasedStore(remote)
        store.adopt(TERMS)
        await warm(store)
        remote.clock.advance_ns(SECOND * 4 // 10)
        store._set_alarm()
        for _ in range(1_000):
            if not store._desk.units_held():
                break
            await asyncio.sleep(0.001)
        assert store._desk.units_held() == 0
        await store.aclose()

    asyncio.run(main())


def test_one_store_serves_several_loops() -> None:
    remote = asyncio.run(_made())
    store = LeasedStore(remote)
    store.adopt(TERMS)
    for _ in range(3):
        asyncio.run(_warmed(store, remote))
    assert used(remote) > 0


async def _made() -> Remote:
    return Remote()


async def _warmed(store: LeasedStore, remote: Remote) -> None:
    remote.gate = asyncio.Event()
    remote.gate.set()
    for _ in range(30):
        assert await take(store, check()) == [True]
