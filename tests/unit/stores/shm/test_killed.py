"""Killed between any two writes, a process leaves every operation done or not done."""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import count
from typing import Any

import pytest

from headgate.limits import (
    FixedWindow,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.base import Store
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Operation,
    Refund,
    Reset,
    Settle,
    Take,
)
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of
from headgate.testing import ManualClock
from tests.support.shm_stores import assert_every_block_has_one_owner, fresh_store

LIMITS: tuple[Limit, ...] = (
    FixedWindow(1_000, 1_000),
    TokenBucket(1_000, 1),
    SlidingWindowLog(1_000, 1_000),
)
PAGE = 4096


class Killed(BaseException):
    """In place of SIGKILL."""


class Life:
    """Writes that are still to be made until the process is killed."""

    def __init__(self, writes: int) -> None:
        self.left = writes
        self.is_over = False

    def spend(self, break_off: Callable[[], object] | None = None) -> None:
        """Another write; if it is the one that is not made, it may break off."""
        if self.is_over or not self.left:
            if not self.is_over and break_off is not None:
                break_off()
            self.is_over = True
            raise Killed
        self.left -= 1


class Writing:
    """`os.pwrite` until the process is killed. A long one may break off half-way."""

    def __init__(self, pwrite: Callable[[int, bytes, int], int], life: Life) -> None:
        self._pwrite = pwrite
        self._life = life

    def __call__(self, fd: int, data: bytes, offset: int) -> int:
        is_long = len(data) > PAGE
        self._life.spend((lambda: self._pwrite(fd, data[:PAGE], offset)) if is_long else None)
        return self._pwrite(fd, data, offset)


class Words:
    """The words of a file's memory: each is written or not."""

    def __init__(self, words: memoryview, life: Life) -> None:
        self._words = words
        self._life = life
        self.release = words.release

    def __getitem__(self, place: int) -> int:
        word: int = self._words[place]
        return word

    def __setitem__(self, place: int, word: int) -> None:
        self._life.spend()
        self._words[place] = word


class Memory(mmap.mmap):
    """The memory of a file: what is longer than a word may break off anywhere."""

    life: Life

    def __setitem__(self, place: Any, data: Any) -> None:
        half = slice(place.start, place.start + len(data) // 2)
        self.life.spend(lambda: mmap.mmap.__setitem__(self, half, data[: len(data) // 2]))
        super().__setitem__(place, data)


def make_mortal(store: ShmStore, life: Life) -> None:
    """Have what *store* writes to its memory come out of *life*."""
    file = store._files.current
    assert file is not None
    file.words = Words(file.words, life)  # type: ignore[assignment] # all that is used of it
    file.memory = Memory(file.fd, file.layout.size)
    file.memory.life = life


def checks(cost: int = 1, keys: str = "ab") -> tuple[Check, ...]:
    return tuple(
        Check(f"group {n}", key, limit, cost) for n, limit in enumerate(LIMITS) for key in keys
    )


def used(store: Store) -> list[int]:
    """What is left of each counter."""
    looked = store.run(Take(checks(0, "abc"), consume=False))
    return [outcome.remaining for outcome in looked]


def filled(store: Store, clock: ManualClock) -> None:
    """Logs that are long enough to need several blocks, and a reservation."""
    for _ in range(70):
        store.run(Take(checks()))
        clock.advance_ns(1_000)
    store.run(Hold(checks(2), "open", 10**12))


OPERATIONS: dict[str, Operation[Any]] = {
    "take": Take(checks(3)),
    "take of new counters": Take(checks(2, "abc")),
    "hold": Hold(checks(5), "name", 10**12),
    "settle": Settle(checks(7), "open", charge_lapsed=True),
    "charge": Charge(checks(2_000)),
    "refund": Refund(checks(69)),
    "reset": Reset(checks()),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_is_done_or_not_done_wherever_its_process_is_killed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATIONS[what]
    seen = []
    for before, after, undisturbed in killed_after_each_write(operation, monkeypatch):
        seen.append(after)
        assert after in (before, undisturbed), f"{what}: killed after write {len(seen) - 1}"
    assert len(seen) > 3
    assert seen[0] != seen[-1], "the operation changes something"


def killed_after_each_write(
    operation: Operation[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """What a store says before, after a kill, and without one; for a kill after each write."""
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=1MB") as calm:
        filled(calm, clock)
        image, before = path_of(name_of(calm)).read_bytes(), used(calm)
        calm.run(operation)
        undisturbed = used(calm)
    for writes in count():
        with fresh_store(clock, "size=1MB") as disturbed, monkeypatch.context() as patched:
            path_of(name_of(disturbed)).write_bytes(image)
            used(disturbed)
            life = Life(writes)
            make_mortal(disturbed, life)
            patched.setattr(os, "pwrite", Writing(os.pwrite, life))
            with suppress(Killed):
                disturbed.run(operation)
            patched.undo()
            survivor = ShmStore(f"shm://{name_of(disturbed)}", clock=clock)
            yield before, used(survivor), undisturbed
            survivor.run(Take(checks()))
            assert_every_block_has_one_owner(survivor)
            survivor.close()
        if not life.is_over:
            return


QUICK: dict[str, tuple[Limit, ...]] = {
    "a bucket": (TokenBucket(1_000, 1),),
    "a bucket of two words": (TokenBucket(1_000, Fraction(999_999, 1_000)),),
    "a window": (FixedWindow(1_000, 1_000),),
    "a sliding counter": (SlidingWindowCounter(1_000, 1_000),),
    "a stack": (TokenBucket(1_000, 1), FixedWindow(1_000, 1_000), SlidingWindowCounter(999, 50)),
}


@pytest.mark.parametrize("what", QUICK)
@pytest.mark.parametrize("is_late", [False, True], ids=["soon", "in the next window"])
def test_a_hit_of_known_counters_is_done_or_not_done_too(
    what: str, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    places = [(f"group {n}", limit) for n, limit in enumerate(QUICK[what])]
    looks = Take(tuple(Check(group, "key", limit, 0) for group, limit in places), consume=False)

    def left(store: ShmStore) -> list[int]:
        return [outcome.remaining for outcome in store.run(looks)]

    seen = []
    for writes in count():
        clock = ManualClock(1_700_000_000)
        with fresh_store(clock, "size=1MB") as store, monkeypatch.context() as patched:
            life = Life(10**9)
            patched.setattr(os, "pwrite", Writing(os.pwrite, life))
            prepared, many = store.prepare(places), len(places)
            for _ in range(3):  # new, searched, known
                prepared.take(["key"] * many, [100] * many)
            if is_late:
                clock.advance_ns(1_000 * 10**9)
                prepared.take(["another key"] * many, [1] * many)  # sweeps
                assert store._files.current is not None
                store._files.current.sweep_due = clock() + 1
            before = left(store)
            make_mortal(store, life)
            life.left = writes
            with suppress(Killed):
                prepared.take(["key"] * many, [7] * many)
            patched.undo()
            survivor = ShmStore(f"shm://{name_of(store)}", clock=clock)
            seen.append(left(survivor))
            survivor.close()
            if not life.is_over:
                break
    charged = [max(0, n - 7) for n in before]
    assert seen[0] == before
    assert seen[-1] == charged
    assert all(one in (before, charged) for one in seen), seen
    assert len(seen) > (2 + len(places) if len(places) > 1 else 1), "each write was the last once"


def name_of(store: ShmStore) -> str:
    return store._files.address.name
