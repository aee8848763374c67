"""The store in shared memory: exact among all processes of a host, whoever is killed."""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar, cast

from headgate.errors import OptionError, StoreError
from headgate.fork import watch_forks
from headgate.stores.base import Prepared, Store
from headgate.stores.operations import Check, Operation, Outcomes, Take
from headgate.stores.shm.fast_path import Asked, KnownCounters, take_known
from headgate.stores.shm.file import CLOSED, File, read_url, store_error
from headgate.stores.shm.transaction import Transaction
from headgate.stores.shm.verbs import carry_out, take
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.stores.base import Place

R = TypeVar("R")

_SWEEP_NS: Final = 10 * MILLISECOND
"""How often a process that is busy looks through a bucket for idle counters."""
_LOOK_NS: Final = SECOND
"""How often it looks whether the file is still in its place."""


class ShmStore(Store):
    """Counters in shared memory, for all processes of this user that name the same store.

    The file is opened with the first operation, and again after a fork. Idle counters vanish; the
    size is bounded: when it is used up, further keys share a fixed number of counters until some
    are idle. A process that is killed leaves nothing half done.
    """

    waits = False
    publishes_values = True
    is_shared = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._address = read_url(url)
        if clock is not None and type(clock()) is not int:
            raise OptionError(f"the clock says {clock()!r}; expected a function like time.time_ns")
        self._given_clock = clock
        self._offset = time.time_ns() - time.monotonic_ns()
        self._read: Clock = time.monotonic_ns if clock is None else clock
        self.clock = clock or self._time
        self._file: File | None = None
        self._opening = threading.Lock()
        self._is_closed = False
        self._look_due = 0
        self._known = KnownCounters()
        watch_forks(self)

    def run(self, operation: Operation[R]) -> R:
        return self._in_turn(lambda file: cast("R", carry_out(operation, file, self._now(file))))

    def prepare(self, places: Sequence[Place]) -> Prepared:
        known = [known for place in places if (known := self._known.of(*place)) is not None]
        if len(known) < len(places) or not all(limit.is_divisible for _, limit in places):
            return super().prepare(places)

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            asked = [Asked(*one) for one in zip(known, keys, costs, strict=True)]
            return self._in_turn(lambda file: self._take(asked, file))

        return Prepared(take, take)

    def close(self) -> None:
        self._is_closed = True
        self._let_go()

    def after_fork(self) -> None:
        """This is another process now, with one thread: a lock of its own, a file of its own."""
        self._opening = threading.Lock()
        file, self._file = self._file, None
        if file is not None:
            file.lock = threading.Lock()  # a thread of the parent's may have had it
            file.close()

    def _take(self, asked: Sequence[Asked], file: File) -> Outcomes:
        """Charge all that is *asked* if it fits, else nothing: the quick way if it is known."""
        quick = take_known(asked, file, self._read())
        if quick is not None:
            return quick
        checks = [Check(known.group, key, known.limit, cost) for known, key, cost in asked]
        transaction = Transaction(file, self._now(file))
        outcomes = take(Take(tuple(checks)), transaction)
        transaction.commit()
        for known, key, _ in asked:
            place = transaction.own_place(known.group, key, known.limit)
            if place is not None:
                self._known.learn(known, file, key, place)
        return outcomes

    def _now(self, file: File) -> int:
        """The time since the epoch; and, if it is time, a look for idle counters."""
        since_origin = self._read()
        now = since_origin + file.origin
        if since_origin >= file.sweep_due:
            transaction = Transaction(file, now)
            transaction.sweep(file.next_bucket)
            transaction.commit()
            file.next_bucket = (file.next_bucket + 1) % (len(file.own) + len(file.shared))
            file.sweep_due = since_origin + _SWEEP_NS
        return now

    def _in_turn(self, work: Callable[[File], R]) -> R:
        """What *work* makes of the open file, with the turn at it."""
        try:
            file = self._opened()
            with file.lock:
                if file.fd == CLOSED:
                    raise StoreError("the store was closed meanwhile", reason="closed")
                try:
                    file.flock.acquire()
                    return work(file)
                finally:
                    file.flock.release()
        except OSError as error:
            self._let_go()
            raise store_error(error) from error
        except (EOFError, struct.error) as error:
            self._let_go()
            message = f"the shared memory {self._address.name!r} was cut short: opened anew"
            raise StoreError(message, reason="unavailable") from error

    def _opened(self) -> File:
        file = self._file
        if file is not None and time.monotonic_ns() < self._look_due:
            return file
        with self._opening:
            if self._is_closed:
                raise StoreError("the store is closed", reason="closed")
            file = self._file
            if file is not None and not file.is_in_place:
                self._file = None
                with file.lock:
                    file.close()
                file = None
            if file is None:
                has_clock = self._given_clock is not None
                file = File.open(self._address, has_clock=has_clock)
                self._file = file
                self._offset = file.layout.anchor_ns
            self._look_due = time.monotonic_ns() + _LOOK_NS
            return file

    def _let_go(self) -> None:
        with self._opening:
            file, self._file = self._file, None
        if file is not None:
            with file.lock:
                file.close()

    def _time(self) -> int:
        return time.monotonic_ns() + self._offset
