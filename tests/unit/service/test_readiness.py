"""Whether a worker should be given requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.service.readiness import Readiness
from headgate.stores.memory import MemoryStore
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from headgate.stores.base import Store
    from headgate.stores.operations import Operation


_DECIDED = "the failure mode of each rule applies"


class Fickle(LoopStore):
    """Answers, fails or is silent, as it is told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.is_silent = False
        self.asked = 0

    async def arun(self, operation: Operation[Any]) -> Any:
        self.asked += 1
        if self.is_silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return ()


def looked(store: Store, rules: str | None = None, *, deadline: float = 60.0) -> tuple[str, ...]:
    async def look() -> tuple[str, ...]:
        readiness = Readiness(
            store, namespace="shop", missing_rules=lambda: rules, deadline=deadline
        )
        await readiness.look()
        return readiness.reasons()

    return asyncio.run(look())


def test_is_ready_with_rules_and_a_store_that_answers() -> None:
    assert looked(Fickle()) == ()


def test_is_not_ready_before_the_store_has_been_asked() -> None:
    readiness = Readiness(Fickle(), namespace="shop", missing_rules=lambda: None)
    assert readiness.reasons() == ("the store has not been checked yet",)


def test_says_everything_that_is_missing() -> None:
    store = Fickle()
    store.error = StoreError("down", reason="unreachable")
    assert looked(store, "no policy is in force") == (
        "no policy is in force",
        "the store is unavailable (unreachable)",
    )


def test_a_store_that_says_nothing_is_not_waited_for() -> None:
    store = Fickle()
    store.is_silent = True
    assert looked(store, deadline=0.001) == ("the store did not answer within 0.001 s",)


def test_a_store_that_has_answered_once_may_be_gone_for_all_replicas_alike() -> None:
    store = Fickle()

    async def look() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        readiness = Readiness(store, namespace="shop", missing_rules=lambda: None)
        told = []
        gone = StoreError("down", reason="unreachable")
        for error in (gone, None, gone, None):
            store.error = error
            await readiness.look()
            told.append((readiness.reasons(), readiness.trouble()))
        return told

    gone = ("the store is unavailable (unreachable)",)
    assert asyncio.run(look()) == [(gone, ()), ((), ()), ((), gone), ((), ())]


def test_draining_is_the_only_reason_that_counts() -> None:
    readiness = Readiness(Fickle(), namespace="shop", missing_rules=lambda: "no rules")
    readiness.is_draining = True
    assert readiness.reasons() == ("the service is shutting down",)


def test_asking_leaves_nothing_behind() -> None:
    store = MemoryStore()
    assert looked(store) == ()
    assert len(store) == 0


@pytest.mark.parametrize("error", [StoreError("down", reason="timeout"), ZeroDivisionError()])
def test_goes_on_asking_until_it_is_closed(error: Exception) -> None:
    async def trial() -> None:
        store = Fickle()
        readiness = Readiness(store, namespace="shop", missing_rules=lambda: None, every=0.001)
        await readiness.start()
        store.error = error
        async with asyncio.timeout(10):
            while not readiness.trouble():  # noqa: ASYNC110 - there is nothing else to wait for
                await asyncio.sleep(0)
            store.error = None
            while readiness.trouble():  # noqa: ASYNC110 - the same
                await asyncio.sleep(0)
        await readiness.aclose()
        asked = store.asked
        await asyncio.sleep(0.01)
        assert store.asked == asked

    asyncio.run(trial())


def test_a_store_that_goes_and_comes_back_is_told_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Fickle()

    async def look() -> None:
        readiness = Readiness(store, namespace="shop", missing_rules=lambda: None)
        gone = StoreError("down", reason="unreachable")
        open_ = StoreError("left alone", reason="circuit_open")
        for error in (None, gone, gone, open_, gone, None, None):
            store.error = error
            await readiness.look()

    with caplog.at_level("INFO", logger="headgate.service"):
        asyncio.run(look())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"the store is unavailable (unreachable); {_DECIDED}"),
        ("INFO", "the store answers again"),
    ]
