"""Prepared takes of counters whose cells are known: what they write, and what they remember."""

from __future__ import annotations

import gc
import os
from fractions import Fraction

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
from headgate.stores.shm import ShmStore
from headgate.stores.shm import prepared as shm_prepared
from headgate.stores.shm.file import path_of
from headgate.stores.shm.records import FIXED, limit_of, limit_text, prefix
from headgate.stores.shm.table import PAGE, WORD
from headgate.testing import ManualClock
from tests.support.shm_stores import fresh_store, fresh_url

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
    assert len(prefix(limit, FIXED)) % WORD == 0, "or a kill could leave half of a word"
    assert limit_of(limit_text(limit)) == limit


def slow_writes(store: ShmStore, monkeypatch: pytest.MonkeyPatch, limits: list[Limit]) -> int:
    """How many writes by the kernel a hundred takes make once the counters are known."""
    prepared = store.prepare([(f"group {n}", limit) for n, limit in enumerate(limits)])
    keys, costs = ["key"] * len(limits), [1] * len(limits)
    prepared.take(keys, costs)
    calls: list[int] = []
    pwrite = os.pwrite

    def counted(fd: int, data: bytes, at: int) -> int:
        calls.append(at)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", counted)
    for _ in range(100):
        prepared.take(keys, costs)
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
        prepared = [one.prepare([("group", limit)]) for one in (store, memory)]
        for cost in (1, 1, 10**14, 10**15 - 1, 5, 10**18, 0, 1):
            ours, expected = (one.take(["key"], [cost]) for one in prepared)
            assert ours == expected, cost
            clock.advance_ns(10**9)


def test_what_is_known_is_bounded_for_all_limits_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_prepared, "MAX_CELLS", 100)
    with fresh_store(ManualClock(1_700_000_000)) as store:
        limits = [TokenBucket(10, 1), FixedWindow(10, 10), SlidingWindowCounter(10, 10)]
        prepared = [store.prepare([(f"group {n}", limit)]) for n, limit in enumerate(limits)]
        for n in range(250):
            for one in prepared:
                assert one.take([f"key {n}"], [1])[0].remaining == 9
        assert store._files.current is not None
        assert 0 < len(store._files.current.cells) <= 100


def test_a_handle_goes_on_when_the_file_was_replaced() -> None:
    with fresh_store(ManualClock(1_700_000_000)) as store:
        prepared = store.prepare([("group", TokenBucket(10, 1))])
        for _ in range(3):
            prepared.take(["key"], [1])
        path_of(store._files.address.name).unlink()
        store._files.look_due = 0  # a second later
        assert [prepared.take(["key"], [1])[0].remaining for _ in range(3)] == [9, 8, 7]


def test_a_look_drops_nothing() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=1MB") as store:
        store.run(Take((Check("group", "key", FixedWindow(10, 60), 4),)))
        assert store._files.current is not None
        path = path_of(store._files.address.name)
        before = path.read_bytes()[PAGE + 4 * WORD :]  # behind the count of the lock
        clock.advance_ns(3_600 * 10**9)
        for key in ("key", "another key"):
            store.run(Take((Check("group", key, FixedWindow(10, 60)),), consume=False))
        assert path.read_bytes()[PAGE + 4 * WORD :] == before


def test_a_store_that_is_dropped_gives_its_file_back() -> None:
    with fresh_url() as url:
        store = ShmStore(url)
        store.run(Take((Check("group", "key", TokenBucket(10, 1)),)))
        assert store._files.current is not None
        fd = store._files.current.fd
        os.fstat(fd)
        del store
        gc.collect()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)


def test_a_file_that_somebody_closed_is_opened_again() -> None:
    with fresh_store(ManualClock(1_700_000_000)) as store:
        prepared = store.prepare([("group", TokenBucket(10, 1))])
        for _ in range(3):
            prepared.take(["key"], [1])
        assert store._files.current is not None
        os.close(store._files.current.fd)
        with pytest.raises(StoreError, match="Bad file"):
            prepared.take(["key"], [1])
        assert prepared.take(["key"], [1])[0].remaining == 6
