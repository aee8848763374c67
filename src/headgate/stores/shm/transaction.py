"""Operations on counters: what one operation reads, and what it writes at its end, at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import Algorithm, carry
from headgate.algorithms.reservations import expire, idle_in
from headgate.errors import StoreError
from headgate.limits import Concurrency
from headgate.stores.counter import CounterTransaction, execute
from headgate.stores.operations import (
    Check,
    Operation,
    Reset,
    Take,
    TakeEach,
    divide,
)
from headgate.stores.shm.file import LOG, layout_of
from headgate.stores.shm.records import UNTOUCHED, Entry, State
from headgate.stores.shm.table import (
    EMPTY,
    HEAD,
    INLINE,
    MARK_WORD,
    NEVER,
    Blocks,
    Write,
    recover,
    write_all,
)
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.shm.file import File
    from headgate.stores.shm.table import Table

SWEEP_NS: Final = 10 * MILLISECOND
"""The interval at which a busy process drops the idle counters of a bucket."""


class Place:
    """A counter that was looked up: its cell, in use or to be used, and what it holds."""

    __slots__ = ("algorithm", "blocks", "cell", "entry", "name")

    def __init__(self, name: bytes, cell: int) -> None:
        self.name = name
        self.cell = cell
        self.algorithm: Algorithm[State] | None = None
        self.entry: Entry = UNTOUCHED
        self.blocks: list[int] = []
        """The blocks of the record in the cell, which a new one frees."""


class Transaction:
    """The counters of one operation. The caller holds the lock until `commit` has returned."""

    __slots__ = ("_blocks", "_changed", "_file", "_places", "_reserved", "now")

    def __init__(self, file: File, now: int) -> None:
        self._file = file
        self.now = now
        self._blocks = Blocks(file)
        self._places: dict[bytes, Place] = {}
        self._reserved: set[int] = set()
        self._changed: dict[bytes, tuple[Place, Limit | None, Entry]] = {}
        if file.words[MARK_WORD]:
            if layout_of(file.fd) != file.layout:
                raise EOFError("the file is not the one that was opened")
            recover(file)

    def place(self, group: str, key: str, limit: Limit) -> Place:
        """Look up the counter of *key*, or find a cell for it: two keys may share one.

        Raises `StoreError` if there is none.
        """
        file, has_slots = self._file, isinstance(limit, Concurrency)
        name = file.names.own(group, key, has_slots=has_slots)
        found = self._places.get(name) or self._found(file.own, name)
        if found is None:
            other = file.names.overflow(group, name, has_slots=has_slots)
            shared = self._places.get(other) or self._found(file.overflow, other)
            found = self._vacant(file.own, name)
            if found is None:
                found = shared or self._vacant(file.overflow, other)
            elif shared is not None and self._idle_in(shared):
                # The key may be one of those that shared it, so it takes over all they have used;
                # but in its own cell, or else a counter that many share would never be idle.
                found.algorithm, found.entry = shared.algorithm, shared.entry
        if found is None:
            raise StoreError("the shared memory is full", reason="out_of_memory")
        self._places[found.name] = found
        self._reserved.add(found.cell)
        return found

    def own_cell(self, group: str, key: str, limit: Limit) -> tuple[int, bytes] | None:
        """Return cell and name of a counter that was looked up, unless its key shares one."""
        has_slots = isinstance(limit, Concurrency)
        name = self._file.names.own(group, key, has_slots=has_slots)
        place = self._places.get(name)
        return None if place is None else (place.cell, name)

    def algorithm(self, limit: Limit) -> Algorithm[State]:
        """Return the arithmetic of *limit*."""
        return self._file.records.kept(limit).algorithm

    def load(self, place: Place, limit: Limit) -> Entry:
        """Return the counter at *place*, converted if it was kept under another limit."""
        algorithm = self.algorithm(limit)
        if place.algorithm is None:
            return UNTOUCHED
        before, holds, kept_until = place.entry
        if place.algorithm is algorithm:
            return Entry(before, holds)
        state, holds = expire(place.algorithm, before, holds, self.now)
        if state is not None:
            state = carry(place.algorithm, state, algorithm, self.now)
        if state != before:
            self.put(place, limit, Entry(state, holds, kept_until))
        return Entry(state, holds)

    def put(self, place: Place, limit: Limit, entry: Entry) -> None:
        """Store *entry* at *place* with `commit`."""
        self._changed[place.name] = place, limit, entry

    def reset(self, group: str, key: str) -> None:
        """Drop the counters of *key* in *group*: its own, or else those that it shares.

        A cell of its own is kept for the period of the limit, and until the counter that the key
        would share is idle: the key starts unused, and does not take over what others have used.
        """
        file = self._file
        for has_slots in (False, True):
            name = file.names.own(group, key, has_slots=has_slots)
            own = self._found(file.own, name)
            shared_name = file.names.overflow(group, name, has_slots=has_slots)
            shared = self._found(file.overflow, shared_name)
            if own is not None and own.algorithm is not None:
                limit = own.algorithm.limit
                wait = max(limit.period_ns, 0 if shared is None else self._idle_in(shared))
                self.put(own, limit, Entry(None, {}, kept_until=self.now + wait))
            elif (found := own or shared) is not None:
                self._drop(found)

    def sweep(self, bucket: int) -> None:
        """Drop the idle counters of a bucket; those of the overflow table come after the others."""
        own = len(self._file.own)
        table = self._file.own if bucket < own else self._file.overflow
        for cell in table.used_cells(bucket if bucket < own else bucket - own):
            place = self._read(cell)
            if not self._idle_in(place):
                self._drop(place)

    def commit(self) -> None:
        """Write all changes, at once."""
        if not self._changed:
            return
        writes: list[Write] = []
        freed = []
        for place, limit, entry in self._changed.values():
            if limit is None or entry == UNTOUCHED:
                writes.append((place.cell, EMPTY))
            else:
                record = self._file.records.write(limit, entry)
                is_long = len(record) > INLINE
                first = self._blocks.write(record) if is_long else 0
                head = HEAD.pack(place.name, len(record), first)
                writes.append((place.cell, head if is_long else head + record))
            if place.blocks:
                freed.append(place.blocks)
        write_all(self._file, [*writes, *self._blocks.changes(freed)])
        self._changed.clear()

    def _drop(self, place: Place) -> None:
        self._changed[place.name] = place, None, UNTOUCHED

    def _found(self, table: Table, name: bytes) -> Place | None:
        cell = table.find(name)
        return None if cell is None else self._read(cell)

    def _read(self, cell: int) -> Place:
        """Read the counter in *cell*. A record that is damaged counts as none."""
        memory = self._file.memory
        name, length, first = HEAD.unpack_from(memory, cell)
        place = Place(name, cell)
        try:
            if length <= INLINE:
                record = memory[cell + HEAD.size : cell + HEAD.size + length]
            else:
                record, place.blocks = self._blocks.read(first, length)
            place.algorithm, place.entry = self._file.records.read(record)
        except ValueError as error:
            if not self._file.has_warned:
                LOG.warning("Counters in shared memory are damaged and start afresh: %s", error)
                self._file.has_warned = True
            place.blocks = []
        return place

    def _vacant(self, table: Table, name: bytes) -> Place | None:
        """Find a cell for a new counter: an empty one, or one whose counter is idle."""
        if table.is_full_for(name, self.now):
            return None
        empty, used = table.candidates(name)
        for cell in empty:
            if cell not in self._reserved:
                return Place(name, cell)
        idle_in = NEVER
        for cell in used:
            if cell in self._reserved:
                continue
            old = self._read(cell)
            wait = self._idle_in(old)
            if not wait:
                place = Place(name, cell)
                place.blocks = old.blocks
                return place
            idle_in = min(idle_in, wait)
        table.remember_full(name, self.now, idle_in)
        return None

    def _idle_in(self, place: Place) -> int:
        """Return nanoseconds until the counter at *place* is as good as none; 0 if it is."""
        if place.algorithm is None:
            return 0
        state, holds, kept_until = place.entry
        return max(idle_in(place.algorithm, state, holds, self.now), kept_until - self.now)


class OpenCounter(CounterTransaction):
    """The counter at *place* under *limit*, as one operation reads and changes it."""

    __slots__ = ("_place", "_transaction")

    def __init__(self, transaction: Transaction, place: Place, limit: Limit) -> None:
        state, holds, _ = transaction.load(place, limit)
        super().__init__(transaction.algorithm(limit), state, holds, transaction.now)
        self._transaction = transaction
        self._place = place

    def close(self) -> None:
        if self._is_changed:
            entry = Entry(self._state, self._holds)
            self._transaction.put(self._place, self._algorithm.limit, entry)


def run_operation(operation: Operation[Any], file: File, now: int) -> Any:
    """Carry *operation* out and return its reply. The caller holds the lock."""
    divided = divide(operation)
    if divided is not None:
        rest = divided.rest
        return divided.join(None if rest is None else run_operation(rest, file, now))
    if isinstance(operation, TakeEach):
        return tuple(run_operation(take, file, now) for take in operation.takes)
    transaction = Transaction(file, now)
    reply: Any = None
    if isinstance(operation, Reset):
        for check in operation.checks:
            transaction.reset(check.group, check.key)
    else:
        reply = execute(operation, partial(open_counters, transaction))
    if not isinstance(operation, Take) or operation.consume:  # a peek converts no counter
        transaction.commit()
    return reply


def sweep(file: File, since_origin: int) -> None:
    """Drop the idle counters of the next bucket, if it is time."""
    if since_origin >= file.sweep_due:
        transaction = Transaction(file, since_origin + file.origin)
        transaction.sweep(file.next_bucket)
        transaction.commit()
        file.next_bucket = (file.next_bucket + 1) % (len(file.own) + len(file.overflow))
        file.sweep_due = since_origin + SWEEP_NS


def open_counters(
    transaction: Transaction, checks: tuple[Check, ...]
) -> list[tuple[OpenCounter, int]]:
    """Open the counter of each check; checks of one counter share it."""
    by_name: dict[bytes, OpenCounter] = {}
    opened = []
    for check in checks:
        place = transaction.place(check.group, check.key, check.limit)
        counter = by_name.get(place.name)
        if counter is None:
            counter = by_name[place.name] = OpenCounter(transaction, place, check.limit)
        opened.append((counter, check.cost))
    return opened
