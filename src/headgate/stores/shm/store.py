"""The store in shared memory: exact among all processes of a host, whichever of them are killed."""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar, cast

from headgate.errors import OptionError, StoreError
from headgate.fork import watch_forks
from headgate.stores.base import Prepared, Store, checks_at
from headgate.stores.operations import Operation, Outcomes, Take
from headgate.stores.shm.file import CLOSED, File, read_url, store_error
from headgate.stores.shm.records import FIXED, Form, State, form_of, prefix
from headgate.stores.shm.table import CELL, HEAD, MARK_WORD, WORD, write_all
from headgate.stores.shm.transaction import Transaction, execute, take
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.algorithms import Outcome
    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.stores.base import Place

R = TypeVar("R")

_SWEEP_NS: Final = 10 * MILLISECOND
"""The interval at which a busy process drops the idle counters of a bucket."""
_LOOK_NS: Final = SECOND
"""The interval at which it checks that the file is still in its place."""
MAX_CELLS: Final = 100_000
"""Cells of counters that a process remembers; each takes some 350 bytes."""
_UNKNOWN: Final = 0, b""
"""The header in place of a cell: it never begins as a cell does."""


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
        self._address = read_url(url)
        if clock is not None and type(clock()) is not int:
            raise OptionError(f"the clock says {clock()!r}; expected a function like time.time_ns")
        self._has_clock = clock is not None
        self._offset = time.time_ns() - time.monotonic_ns()
        self._read: Clock = time.monotonic_ns if clock is None else clock
        self.clock: Clock = self._time if clock is None else clock
        self._file: File | None = None
        self._opening = threading.Lock()
        self._is_closed = False
        self._look_due = 0
        watch_forks(self)

    def run(self, operation: Operation[R]) -> R:
        def work(file: File) -> R:
            since_origin = self._read()
            if not isinstance(operation, Take) or operation.consume:  # a look drops nothing
                _sweep(file, since_origin)
            return cast("R", execute(operation, file, since_origin + file.origin))

        return self._locked(work)

    def prepare(self, places: Sequence[Place]) -> Prepared:
        """Prepare takes that go straight to the cells of counters that were used before."""
        kept = tuple(places)
        states = _fixed_states(kept)
        if states is None:
            return super().prepare(kept)
        read = self._read

        def take_all(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            def work(file: File) -> Outcomes:
                since_origin = read()
                now = since_origin + file.origin
                if since_origin < file.sweep_due:
                    outcomes = _take_known(file, states, keys, costs, now)
                    if outcomes is not None:
                        return outcomes
                else:
                    _sweep(file, since_origin)
                return _take_and_learn(file, Take(checks_at(kept, keys, costs)), now)

            return self._locked(work)

        return Prepared(take_all, take_all)

    def close(self) -> None:
        self._is_closed = True
        self._drop_file()

    def after_fork(self) -> None:
        """Drop the locks and the file of the parent process."""
        self._opening = threading.Lock()
        file, self._file = self._file, None
        if file is not None:
            file.threads = threading.Lock()  # a thread of the parent may have held it
            file.close()

    def _locked(self, work: Callable[[File], R]) -> R:
        """Return the result of *work* on the open file, with its locks held."""
        try:
            file = self._opened()
            with file.threads:
                if file.fd == CLOSED:
                    raise StoreError("the store was closed meanwhile", reason="closed")
                try:
                    file.processes.acquire()
                    return work(file)
                finally:
                    file.processes.release()
        except OSError as error:
            self._drop_file()
            raise store_error(error) from error
        except (EOFError, struct.error) as error:
            self._drop_file()
            message = f"the shared memory {self._address.name!r} was replaced or is damaged"
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
                with file.threads:
                    file.close()
                file = None
            if file is None:
                file = self._file = File.open(self._address, has_clock=self._has_clock)
                self._offset = file.layout.anchor_ns
            self._look_due = time.monotonic_ns() + _LOOK_NS
            return file

    def _drop_file(self) -> None:
        with self._opening:
            file, self._file = self._file, None
        if file is not None:
            with file.threads:
                file.close()

    def _time(self) -> int:
        return time.monotonic_ns() + self._offset


def _sweep(file: File, since_origin: int) -> None:
    """Drop the idle counters of the next bucket, if it is time."""
    if since_origin >= file.sweep_due:
        transaction = Transaction(file, since_origin + file.origin)
        transaction.sweep(file.next_bucket)
        transaction.commit()
        file.next_bucket = (file.next_bucket + 1) % (len(file.own) + len(file.overflow))
        file.sweep_due = since_origin + _SWEEP_NS


# Takes of counters whose cells are known.
#
# A cell that was found once is used again without a search if it still begins as expected: with the
# name of the counter, the same limit, and a state of the same size. Then only the state is written:
# a word of memory if no more changes, else through the kernel or the journal.


class FixedStates:
    """The counters of *group* under *limit*, whose states have a fixed size."""

    __slots__ = ("beginning", "form", "group", "limit", "offset")

    def __init__(self, group: str, limit: Limit, form: Form) -> None:
        self.group = group
        self.limit = limit
        self.form = form
        start = prefix(limit, FIXED)
        self.beginning = struct.pack("=II", len(start) + form.size, 0) + start
        """The bytes between the name and the state in a cell."""
        self.offset = HEAD.size + len(start)
        """Where the state begins in a cell."""


def _fixed_states(places: Sequence[Place]) -> list[FixedStates] | None:
    """Return the counters of *places*; None unless all have states that fit into their cells."""
    found = []
    for group, limit in places:
        form = form_of(limit)
        if form is None:
            return None
        states = FixedStates(group, limit, form)
        if states.offset + form.size > CELL:
            return None
        found.append(states)
    return found


_Found = tuple[int, State, State, "Outcome"]
"""Where the state of a counter lies, the state before and after a take, and the outcome."""


def _take_known(
    file: File, places: list[FixedStates], keys: Sequence[str], costs: Sequence[int], now: int
) -> Outcomes | None:
    """Take the costs if all fit, else none; return None, and do nothing, if a cell is not known."""
    if file.words[MARK_WORD]:
        return None
    if len(places) == 1:
        return _take_one(file, places[0], keys[0], costs[0], now)
    known = []
    for states, key, cost in zip(places, keys, costs, strict=True):
        found = _find(file, states, key, cost, now)
        if found is None:
            return None
        known.append(found)
    if len({found[0] for found in known}) < len(known):
        return None
    outcomes = [found[3] for found in known]
    pairs = list(zip(places, known, strict=True))
    if all(outcome.allowed for outcome in outcomes):
        write_all(file, [(found[0], states.form.pack(found[2])) for states, found in pairs])
    else:
        for n, (states, (_, before, _, _)) in enumerate(pairs):
            algorithm = file.records.kept(states.limit).algorithm
            if algorithm.rebase(before, now) is not before:
                return None  # the clock stepped back: a denial is written too
            if outcomes[n].allowed:  # it fits, but was not charged
                outcomes[n] = algorithm.outcome(before, 0, now)
    return tuple(outcomes)


def _take_one(file: File, states: FixedStates, key: str, cost: int, now: int) -> Outcomes | None:
    """Take one cost: a single word changes as a rule, which needs neither kernel nor journal."""
    found = _find(file, states, key, cost, now)
    if found is None:
        return None
    at, before, after, outcome = found
    if before != after:
        change = states.form.changed_word(before, after)
        if change is None:
            write_all(file, [(at, states.form.pack(after))])
        else:
            word, value = change
            file.words[at // WORD + word] = value
    return (outcome,)


def _find(file: File, states: FixedStates, key: str, cost: int, now: int) -> _Found | None:
    """Read the counter of *key*, and compute what a take of *cost* does to it."""
    cell, name = file.cells.get((states.group, key), _UNKNOWN)
    at = cell + states.offset
    if not cost or file.memory[cell:at] != name + states.beginning:
        return None
    before = states.form.read(file.memory, at)
    after, outcome = file.records.kept(states.limit).algorithm.take(before, cost, now)
    return at, before, after, outcome


def _take_and_learn(file: File, operation: Take, now: int) -> Outcomes:
    """Take the checks by searching their counters, and remember the cells."""
    transaction = Transaction(file, now)
    outcomes = take(operation, transaction)
    transaction.commit()
    for check in operation.checks:
        cell = transaction.own_cell(check.group, check.key, check.limit)
        if cell is not None:
            if len(file.cells) >= MAX_CELLS:
                file.cells.clear()
            file.cells[check.group, check.key] = cell
    return outcomes
