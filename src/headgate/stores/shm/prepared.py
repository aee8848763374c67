"""Takes of counters whose cells are known: the fast path of the store in shared memory.

A cell that was found once is used again without a search if it still begins as expected: with the
name of the counter, the same limit, and a state of the same size. Then only the state is written:
as one word of memory if only one word changes, else through the kernel or the journal. Uncommon
takes (a new key, reservations, a sweep that is due, a cost of 0) search the table.

`take_one` is for one limit, `KnownCounters` for any number of them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from fcntl import flock
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms.base import new_outcome
from headgate.errors import StoreError
from headgate.stores.base import checks_at
from headgate.stores.counter import execute
from headgate.stores.operations import Outcomes, Take
from headgate.stores.shm.file import CLOSED
from headgate.stores.shm.lock import TRY, UNLOCK
from headgate.stores.shm.records import FIXED, Form, form_of, prefix
from headgate.stores.shm.table import CELL, COUNT_WORD, HEAD, MARK_WORD, MAX_WORD, WORD, write_all
from headgate.stores.shm.transaction import Transaction, open_counters, sweep

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.stores.base import Place
    from headgate.stores.shm.file import File, Files

TakeAll = Callable[[Sequence[str], Sequence[int]], Outcomes]
Words = tuple[int, ...]

MAX_CELLS: Final = 100_000
"""Cells of counters that a process remembers; each takes some 350 bytes."""
UNKNOWN: Final = 0, b""
"""The cell and the name of a counter whose cell is not known: no cell begins with this."""


class FixedStates:
    """The counters of *group* under *limit*, whose states have a fixed size."""

    __slots__ = ("beginning", "form", "group", "limit", "offset")

    def __init__(self, group: str, limit: Limit, form: Form) -> None:
        self.group = group
        self.limit = limit
        self.form = form
        start = prefix(limit, FIXED)
        self.beginning = struct.pack("=II", len(start) + form.struct.size, 0) + start
        """The bytes between the name and the state in a cell."""
        self.offset = HEAD.size + len(start)
        """Where the state begins in a cell."""


def fixed_states(places: Sequence[Place]) -> list[FixedStates] | None:
    """Return the counters of *places*; None unless all have states that fit into their cells."""
    if len({group for group, _ in places}) < len(places):
        return None  # two limits of one counter
    found = []
    for group, limit in places:
        form = form_of(limit)
        if form is None:
            return None
        states = FixedStates(group, limit, form)
        if states.offset + form.struct.size > CELL:
            return None
        found.append(states)
    return found


def take_one(  # noqa: C901 (the fast path is one function)
    files: Files, states: FixedStates, read: Clock, otherwise: TakeAll
) -> TakeAll:
    """Return a function that takes from one known counter, and leaves the rest to *otherwise*.

    It is one function, so that the locks are held for a short time: a take takes 3.2 us, with
    separate functions 4.0. System calls take 1.3 of them.
    """
    group, beginning, offset = states.group, states.beginning, states.offset
    form, to_state, to_words, fixed, counted = states.form
    unpack, pack, monotonic_ns = form.unpack_from, form.pack, time.monotonic_ns
    quick_take: Any = None
    taken_from: File | None = None

    def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
        nonlocal quick_take, taken_from
        file, cost, taken = files.current, costs[0], None
        if file is None or not cost or monotonic_ns() >= files.look_due:
            return otherwise(keys, costs)
        if file is not taken_from:
            quick_take, taken_from = file.records.kept(states.limit).algorithm.quick_take, file
        cell, name = file.cells.get((group, keys[0]), UNKNOWN)
        at, expected = cell + offset, name + beginning
        try:
            with file.threads:
                fd, words, memory = file.fd, file.words, file.memory
                if fd == CLOSED:
                    raise StoreError("the store was closed meanwhile", reason="closed")
                try:  # (an interrupt may come at any time)
                    try:
                        flock(fd, TRY)
                    except BlockingIOError:
                        file.processes.wait()
                    words[COUNT_WORD] = (words[COUNT_WORD] + 1) & MAX_WORD
                    now = read()
                    is_usual = now < file.sweep_due and not words[MARK_WORD]
                    if is_usual and memory[cell:at] == expected:
                        before = unpack(memory, at)
                        taken = quick_take(to_state(before), cost, now + file.origin)
                        after = to_words(taken[0])
                        if after[fixed] != before[fixed]:
                            write_all(file, [(at, pack(*after))])
                        elif after[counted] != before[counted]:
                            words[at // WORD + counted] = after[counted] & MAX_WORD
                finally:
                    flock(fd, UNLOCK)
        except files.errors as error:
            raise files.failed(error) from error
        if taken is None:
            return otherwise(keys, costs)
        _, wait, remaining, reset = taken
        return (new_outcome((wait == 0, remaining, wait, reset, 0, 0, "store")),)

    return take


class KnownCounters:
    """Takes of several limits, whose states have a fixed size. The caller holds the lock."""

    def __init__(self, several: list[FixedStates], read: Clock) -> None:
        self._several = several
        self._places = [(states.group, states.limit) for states in several]
        self._read = read
        self._file: File | None = None
        self._takes: list[Any] = []

    def take(self, file: File, keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
        """Take the *costs* if all fit, else none."""
        since_origin = self._read()
        now = since_origin + file.origin
        if since_origin >= file.sweep_due:
            sweep(file, since_origin)
        elif not file.words[MARK_WORD]:
            outcomes = self._take_known(file, keys, costs, now)
            if outcomes is not None:
                return outcomes
        return self._take_and_learn(file, Take(checks_at(self._places, keys, costs)), now)

    def _take_known(
        self, file: File, keys: Sequence[str], costs: Sequence[int], now: int
    ) -> Outcomes | None:
        """Take from the known cells; return None, and change nothing, if one is not known."""
        if self._file is not file:
            kept = [file.records.kept(states.limit) for states in self._several]
            self._file, self._takes = file, [one.algorithm.quick_take for one in kept]
        outcomes: list[Outcome] = []
        changes: list[tuple[int, Form, Words, Words]] = []
        for n, states in enumerate(self._several):
            cell, name = file.cells.get((states.group, keys[n]), UNKNOWN)
            at, form = cell + states.offset, states.form
            if not costs[n] or file.memory[cell:at] != name + states.beginning:
                return None
            before = form.struct.unpack_from(file.memory, at)
            state, wait, remaining, reset = self._takes[n](form.state(before), costs[n], now)
            outcomes.append(new_outcome((wait == 0, remaining, wait, reset, 0, 0, "store")))
            changes.append((at, form, before, form.words(state)))
        if not all(outcome.allowed for outcome in outcomes):
            for n, quick_take in enumerate(self._takes):
                if outcomes[n].allowed:  # it fits, but is not charged
                    at, form, before, _ = changes[n]
                    state, _, remaining, reset = quick_take(form.state(before), 0, now)
                    outcomes[n] = new_outcome((True, remaining, 0, reset, 0, 0, "store"))
                    changes[n] = at, form, before, form.words(state)
        changes = [change for change in changes if change[2] != change[3]]
        if changes:
            write_all(file, [(at, form.struct.pack(*after)) for at, form, _, after in changes])
        return tuple(outcomes)

    def _take_and_learn(self, file: File, operation: Take, now: int) -> Outcomes:
        """Search for the counters, take from them, and remember their cells."""
        transaction = Transaction(file, now)
        outcomes = execute(operation, partial(open_counters, transaction))
        transaction.commit()
        for check in operation.checks:
            cell = transaction.own_cell(check.group, check.key, check.limit)
            if cell is not None:
                if len(file.cells) >= MAX_CELLS:
                    file.cells.clear()
                file.cells[check.group, check.key] = cell
        return outcomes
