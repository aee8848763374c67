"""The store in shared memory: exact among all processes of a host, whichever of them are killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar, cast

from headgate.clock import checked_clock
from headgate.fork import watch_forks
from headgate.stores.base import Prepared, Store
from headgate.stores.operations import Operation, Outcomes, Take
from headgate.stores.shm.file import File, Files, read_url
from headgate.stores.shm.prepared import KnownCounters, fixed_states, take_one
from headgate.stores.shm.transaction import run_operation, sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.clock import Clock
    from headgate.stores.base import Place

R = TypeVar("R")


class ShmStore(Store):
    """Counters in shared memory, for all processes of this user that name the same store.

    The file is opened with the first operation, and again after a fork. The size is bounded: idle
    counters are dropped, and when no cell is left, further keys share a fixed number of counters
    until some are idle. A process that is killed leaves each operation done or not done. An event
    loop that calls is held up for the microseconds of an operation, and for the wait of `lock`.
    """

    waits = False
    publishes_values = True
    is_shared = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        if clock is not None:
            checked_clock(clock)
        self._files = Files(read_url(url), has_clock=clock is not None)
        self._read: Clock = time.monotonic_ns if clock is None else clock
        self.clock: Clock = self._files.time if clock is None else clock
        watch_forks(self)

    def run(self, operation: Operation[R]) -> R:
        return self._files.locked(self._execute, operation)

    def prepare(self, places: Sequence[Place]) -> Prepared:
        """Prepare takes that go straight to the cells of counters that were used before."""
        several = fixed_states(places)
        if several is None:
            return super().prepare(places)
        locked, known = self._files.locked, KnownCounters(several, self._read)

        def take_all(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            return locked(known.take, keys, costs)

        if len(several) > 1:
            return Prepared.at_once(take_all)
        take = take_one(self._files, several[0], self._read, take_all)
        return Prepared.at_once(take)

    def close(self) -> None:
        self._files.close()

    def after_fork(self) -> None:
        """Drop the locks and the file of the parent process."""
        self._files.after_fork()

    def _execute(self, file: File, operation: Operation[R]) -> R:
        since_origin = self._read()
        if not isinstance(operation, Take) or operation.consume:  # a look drops nothing
            sweep(file, since_origin)
        return cast("R", run_operation(operation, file, since_origin + file.origin))
