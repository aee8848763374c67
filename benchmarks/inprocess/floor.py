"""The floor: what any limiter in a dict must do at least, in a function of one argument."""

from __future__ import annotations

import time
from time import thread_time_ns
from typing import TYPE_CHECKING

from benchmarks.inprocess.contestant import Contestant, Entry, Quota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class BareDict(Entry):
    """Read a dict, read the clock, write the dict back."""

    def __init__(self, _quota: Quota) -> None:
        self._check = _dict_and_clock()

    def run(self, keys: Iterable[str]) -> int:
        check = self._check
        start = thread_time_ns()
        for key in keys:
            check(key)
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return self._check(key) > 0


class EmptyLoop(Entry):
    """Nothing: the share of the loop itself in every figure."""

    def __init__(self, _quota: Quota) -> None:
        pass

    def run(self, keys: Iterable[str]) -> int:
        start = thread_time_ns()
        for _key in keys:
            pass
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return bool(key)


def _dict_and_clock() -> Callable[[str], int]:
    table: dict[str, int] = {}
    get = table.get
    clock = time.monotonic_ns

    def check(key: str) -> int:
        value = get(key, 0)
        now = clock()
        table[key] = value
        return now

    return check


FLOOR = Contestant("floor", "dict get, set, clock", "none", BareDict)
EMPTY_LOOP = Contestant("floor", "the empty loop", "none", EmptyLoop, weighed=False)
