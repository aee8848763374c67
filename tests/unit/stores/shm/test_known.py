"""The quick way to counters that are known: when it is taken, and what it does not do."""

from __future__ import annotations

import gc
import os
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from headgate.errors import StoreError
from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    TokenBucket,
)
from headgate.stores import MemoryStore
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore, fast_path
from headgate.stores.shm.records import WORD, limit_of, limit_text
from headgate.testing import ManualClock
from tests.support.shm_stores import fresh_store, fresh_url

if TYPE_CHECKING:
    from headgate.decision import Decision

LIMITS: tuple[Limit, ...] = (
    TokenBucket(10, 3),
    TokenBucket(1_000, Fraction(999_999, 1_000)),
    GCRA(rate=7_000, burst=10),
    LeakyBucket(3, 13),
    FixedWindow(10, 7),
    SlidingWindowCounter(10, 10),
    SlidingWindowCounter(10, 5, subwindows=3),
)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_states_begin_with_a_word_of_memory(limit: Limit) -> None:
    with fresh_store() as store:
        kept = store._known.of("group", limit)
        assert kept is not None
        assert kept.skipped % WORD == 0, "or a kill could leave half of it on some machines"
        assert limit_of(limit_text(limit)) == limit


def slow_writes(store: ShmStore, monkeypatch: pytest.MonkeyPatch, limits: list[Limit]) -> int:
    """How many writes by the kernel a hundred hits make once the counters are known."""
    hit = store.hitter([(f"group {n}", limit) for n, limit in enumerate(limits)])
    assert hit is not None
    hit("key", 1)
    calls: list[int] = []
    pwrite = os.pwrite

    def counted(fd: int, data: bytes, at: int) -> int:
        calls.append(at)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", counted)
    for _ in range(100):
        hit("key", 1)
    return len(calls)


@pytest.mark.parametrize(
    "limits",
    [
        [TokenBucket(1_000, 1)],
        [FixedWindow(1_000, 1_000)],
        [SlidingWindowCounter(1_000, 1_000)],
        [TokenBucket(1_000, 1), FixedWindow(1_000, 1_000)],
    ],
    ids=str,
)
def test_known_counters_are_written_without_the_kernel(
    limits: list[Limit], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_store(ManualClock(1_700_000_000)) as store:
        assert slow_writes(store, monkeypatch, limits) == 0


@pytest.mark.parametrize(
    "limit",
    [
        TokenBucket(10**15 - 1, Fraction(10**15 - 1, 3 * 10**9 + 1)),
        TokenBucket(10**15 - 1, Fraction(10**15 - 1, 10**9 - 1)),
        FixedWindow(10**15 - 1, 10**9),
        SlidingWindowCounter(10**15 - 1, 10**9, 7),
    ],
    ids=str,
)
def test_numbers_that_are_very_large_are_counted_as_in_memory(limit: Limit) -> None:
    clock = ManualClock(1_700_000_000)
    memory = MemoryStore(clock=clock)
    with fresh_store(clock) as store:
        hits = [one.hitter([("group", limit)]) for one in (store, memory)]
        for cost in (1, 1, 10**14, 10**15 - 1, 5, 10**18, 0, 1):
            said: list[Decision] = [hit("key", cost) for hit in hits if hit is not None]
            assert said[0].figures() == said[1].figures(), cost
            clock.advance_ns(10**9)


def test_what_is_known_is_bounded_for_all_limits_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "MOST_KEYS", 100)
    with fresh_store(ManualClock(1_700_000_000)) as store:
        limits = [TokenBucket(10, 1), FixedWindow(10, 10), SlidingWindowCounter(10, 10)]
        hits = [store.hitter([(f"group {n}", limit)]) for n, limit in enumerate(limits)]
        for n in range(250):
            for hit in hits:
                assert hit is not None
                assert hit(f"key {n}", 1).remaining == 9
        assert sum(len(one.by_key) for one in store._known._all) <= 100


def test_a_limiter_goes_on_learning_when_policies_have_come_and_gone() -> None:
    with fresh_store(ManualClock(1_700_000_000)) as store:
        limit = TokenBucket(100, 1)
        hit = store.hitter([("group", limit)])
        kept = store._known.of("group", limit)
        for n in range(200):
            store.hitter([("group", TokenBucket(100 + n, 1))])
        assert hit is not None
        assert kept is not None
        assert hit("key", 1).remaining == 99
        assert "key" in kept.by_key


def test_a_store_that_is_dropped_gives_its_file_back() -> None:
    with fresh_url() as url:
        store = ShmStore(url)
        store.run(Take((Check("group", "key", TokenBucket(10, 1)),)))
        assert store._file is not None
        fd = store._file.fd
        os.fstat(fd)
        del store
        gc.collect()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)


def test_a_file_that_somebody_closed_is_opened_again() -> None:
    with fresh_store(ManualClock(1_700_000_000)) as store:
        hit = store.hitter([("group", TokenBucket(10, 1))])
        assert hit is not None
        for _ in range(3):
            hit("key", 1)
        assert store._file is not None
        os.close(store._file.fd)
        with pytest.raises(StoreError, match="Bad file"):
            hit("key", 1)
        assert hit("key", 1).remaining == 6
