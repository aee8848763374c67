"""Limiters with a name are counted as rules are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import AsyncRateLimiter, Concurrency, Hit, RateLimitedError, RateLimiter
from headgate.errors import KeyInvalidError, OptionError
from headgate.observability import RECORDER, DecisionRecord
from headgate.observability.decision_recorder import SPREAD
from headgate.runtime.waiting_lines import Place
from headgate.testing import ManualClock
from tests.support.failing_fallback import FailingStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def heard() -> Iterator[list[DecisionRecord]]:
    told: list[DecisionRecord] = []
    end = RECORDER.listen(told.append)
    yield told
    end()


def counted(name: str) -> tuple[int, int]:
    """How often it allowed, and denied."""
    found = {outcome: count for (rule, outcome, _), count in RECORDER.counts() if rule == name}
    return found.get("allowed", 0), found.get("denied", 0)


def timed() -> int:
    return sum(RECORDER.latency) + RECORDER.untimed


MANY: list[str | tuple[str, int]] = ["b", ("c", 9)]


def verbs(limiter: RateLimiter) -> None:
    limiter.hit("a")
    limiter.hit("a", 9)
    limiter.peek("a")
    limiter.hit_many(iter(MANY))
    limiter.hit_all([Hit("d", "1/s"), Hit("d", "9/s", 9)])
    limiter.reserve("e", 1).cancel()
    assert not limiter.reserve("e", 9)
    limiter.charge("f", 1)
    limiter.refund("f", 1)
    limiter.hit_up_to("g", 99)
    limiter.hit_up_to("g", 2)


async def async_verbs(limiter: AsyncRateLimiter) -> None:
    await limiter.hit("a")
    await limiter.hit("a", 9)
    await limiter.peek("a")
    await limiter.hit_many(iter(MANY))
    await limiter.hit_all([Hit("d", "1/s"), Hit("d", "9/s", 9)])
    await (await limiter.reserve("e", 1)).cancel()
    assert not await limiter.reserve("e", 9)
    await limiter.charge("f", 1)
    await limiter.refund("f", 1)
    await limiter.hit_up_to("g", 99)
    await limiter.hit_up_to("g", 2)


EXPECTED = [
    ("a", True, 1),
    ("a", False, 9),
    ("b", True, 1),
    ("c", False, 9),
    ("d", True, 10),
    ("e", True, 1),
    ("e", False, 9),
    ("g", True, 5),
    ("g", False, 2),
]


def test_every_verb_that_decides_is_counted_once(heard: list[DecisionRecord]) -> None:
    limiter = RateLimiter("5/s", clock=ManualClock(0), name="sync-verbs")
    before, requests = timed(), [cell[0] for cell in RECORDER.requests]
    verbs(limiter)
    said = [one for told in heard for one in told.rules]
    assert {one.rule for one in said} == {"sync-verbs"}
    assert [(one.key, one.outcome == "allowed", one.cost) for one in said] == EXPECTED
    assert counted("sync-verbs") == (5, 4)
    assert [cell[0] - was for cell, was in zip(RECORDER.requests, requests, strict=True)] == [4, 5]
    assert timed() - before == 8, "two of one round trip are one"


def test_the_async_twin_counts_the_same(heard: list[DecisionRecord]) -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter("5/s", clock=ManualClock(0), name="async-verbs")
        await async_verbs(limiter)

    before = timed()
    asyncio.run(main())
    said = [one for told in heard for one in told.rules]
    assert [(one.key, one.outcome == "allowed", one.cost) for one in said] == EXPECTED
    assert counted("async-verbs") == (5, 4)
    assert timed() - before == 8


def test_each_hit_is_counted_and_one_of_some_is_timed_for_all() -> None:
    limiter = RateLimiter("100/s", clock=ManualClock(0), name="sampled")
    before = timed()
    for _ in range(1_000):
        limiter.hit("often")
        with pytest.raises(KeyInvalidError):
            limiter.hit("")
    assert counted("sampled") == (100, 900)
    assert 1_000 - SPREAD < timed() - before <= 1_000
    for sketch in (RECORDER.busiest, RECORDER.most_denied):
        found = [one.key for one in sketch.top(1_000, 0) if one.group == "sampled"]
        assert found == ["often"]


def test_denials_of_a_source_beside_the_store_are_counted_under_it() -> None:
    store = FailingStore()
    store.fault = "unreachable"
    limiter = RateLimiter("1/s", store=store, name="gone", on_store_failure="fail_closed")
    assert not any(limiter.hit("k") for _ in range(40))
    limiter.close()
    sources = {source: n for (rule, _, source), n in RECORDER.counts() if rule == "gone" and n}
    assert sources == {"fail_closed": 40}


def test_who_waits_is_counted_once_however_often_it_asked(heard: list[DecisionRecord]) -> None:
    limiter = RateLimiter("1/s", clock=ManualClock(0), name="sync-wait")
    before = timed()
    assert limiter.acquire("k")
    assert limiter.acquire("k"), "after a second"
    assert not limiter.acquire("k", timeout=0.1)
    assert not limiter.acquire("k", 5), "it can never fit"
    assert counted("sync-wait") == (2, 2)
    assert timed() == before, "what it waited is not how long it takes to decide"

    async def main() -> None:
        waiting = AsyncRateLimiter("1/s", clock=ManualClock(0), name="async-wait")
        assert await waiting.acquire("k")
        assert await waiting.acquire("k")
        assert not await waiting.acquire("k", timeout=0.1)
        assert not await waiting.acquire("k", 5)

    asyncio.run(main())
    assert counted("async-wait") == (2, 2)
    assert len(heard) == 8


def test_a_caller_whose_time_ended_in_line_is_counted_as_denied() -> None:
    with RateLimiter("5/minute", name="lined") as limiter:
        limiter._lines.join("key", Place())  # somebody waits before this caller
        before = counted("lined")
        assert not limiter.acquire("key", timeout=0)
        after = counted("lined")
    assert (after[0] - before[0], after[1] - before[1]) == (0, 1)


def test_slots_and_decorated_functions_are_counted() -> None:
    slots = RateLimiter(Concurrency(1, ttl=60), name="sync-slots")
    with slots.slot("k"), slots.slot("k") as second:
        assert not second
    assert counted("sync-slots") == (1, 1)
    limiter = RateLimiter("1/day", name="counted-function")

    @limiter.limit("k")
    def work() -> None: ...

    work()
    with pytest.raises(RateLimitedError):
        work()
    assert counted("counted-function") == (1, 1)

    async def main() -> None:
        held = AsyncRateLimiter(Concurrency(1, ttl=60), name="async-slots")
        async with held.slot("k"), held.slot("k") as other:
            assert not other

    asyncio.run(main())
    assert counted("async-slots") == (1, 1)


def test_without_a_name_nothing_is_counted_and_the_verbs_are_its_own() -> None:
    before: Any = dict(RECORDER.counts())
    limiter = RateLimiter("1/s")
    limiter.hit("k")
    limiter.acquire("other")
    assert dict(RECORDER.counts()) == before
    assert not {"acquire", "hit_many", "hit_all", "reserve"} & limiter.__dict__.keys()
    assert "hit" not in AsyncRateLimiter("1/s").__dict__


@pytest.mark.parametrize("name", ["", "two\nlines", "half \ud800", 5])
def test_a_name_must_be_one(name: Any) -> None:
    with pytest.raises(OptionError, match="name is "):
        RateLimiter("1/s", name=name)
    with pytest.raises(OptionError, match="name is "):
        AsyncRateLimiter("1/s", name=name)
