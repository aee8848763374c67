"""The garbage collector of a service: rarely at work, but at work."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from headgate.service.worker import COLLECTED_AFTER, tune_collector

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restore the thresholds. What is frozen stays so: it is all there is of the tests."""
    gc.freeze()  # for `tune_collector` to have little to collect
    usual = gc.get_threshold()
    yield
    gc.set_threshold(*usual)


def test_what_is_there_at_the_start_is_not_collected_again() -> None:
    tune_collector()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == COLLECTED_AFTER


def test_cyclic_garbage_of_requests_is_collected() -> None:
    tune_collector()
    first = weakref.ref(_Cycle())
    kept = [[number] for number in range(COLLECTED_AFTER[0] + 1)]
    assert first() is None
    assert kept


def test_cyclic_garbage_that_has_become_old_is_collected() -> None:
    tune_collector()
    old = _Cycle()
    gc.collect(1)
    gc.collect(1)
    gone = weakref.ref(old)
    del old
    young, (older, every) = 2_000, COLLECTED_AFTER[1:]
    gc.set_threshold(young, older, every)  # the same course with a hundredth of the objects
    kept = []
    for _ in range(older + 1):
        for _ in range(every + 1):
            kept.append([[number] for number in range(young + 1)])
            if gone() is None:
                return
    pytest.fail(f"{len(kept)} times {young} objects later it is still there")
