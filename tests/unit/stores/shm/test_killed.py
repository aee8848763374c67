"""Killed between any two writes, a process leaves every operation done or not done."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from headgate.limits import FixedWindow, Limit, SlidingWindowLog, TokenBucket
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
from headgate.stores.port import Store
from headgate.stores.shm import ShmStore
from headgate.stores.shm.place import path_of
from headgate.testing import ManualClock

from .stores_in_shm import fresh_store

LIMITS: tuple[Limit, ...] = (
    FixedWindow(1_000, 1_000),
    TokenBucket(1_000, 1),
    SlidingWindowLog(1_000, 1_000),
)
PAGE = 4096


class Killed(BaseException):
    """In place of SIGKILL."""


class Writing:
    """`os.pwrite` that does *left* writes and then no more. A long one may break off half-way."""

    def __init__(self, pwrite: Callable[[int, bytes, int], int], left: int) -> None:
        self._pwrite = pwrite
        self.left = left
        self.is_over = False

    def __call__(self, fd: int, data: bytes, offset: int) -> int:
        if self.is_over or not self.left:
            if not self.is_over and len(data) > PAGE:
                self._pwrite(fd, data[:PAGE], offset)
            self.is_over = True
            raise Killed
        self.left -= 1
        return self._pwrite(fd, data, offset)


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
            writing = Writing(os.pwrite, writes)
            patched.setattr(os, "pwrite", writing)
            with suppress(Killed):
                disturbed.run(operation)
            patched.undo()
            survivor = ShmStore(f"shm://{name_of(disturbed)}", clock=clock)
            yield before, used(survivor), undisturbed
            survivor.run(Take(checks()))
            survivor.close()
        if not writing.is_over:
            return


def name_of(store: ShmStore) -> str:
    return store._address.name
