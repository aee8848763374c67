"""All that one operation reads and writes: written at once at its end, or not at all."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Final

from headgate.algorithms import Algorithm, carry
from headgate.algorithms.reservations import Hold, open_holds
from headgate.errors import StoreError
from headgate.limits import Concurrency, FixedWindow, LeakyQueue
from headgate.stores.counter import Counting
from headgate.stores.operations import MOST_ORIGINS
from headgate.stores.shm.file import LOG, layout_of
from headgate.stores.shm.layout import (
    BLOCK,
    CLEARED_AT,
    CONTROL_AT,
    EMPTY,
    FIRST_FREE_AT,
    HEAD,
    INLINE,
    MARK,
    NEVER,
    NOTHING,
    Cell,
    Layout,
    Write,
    carry_out,
    write_all,
)
from headgate.stores.shm.records import UNTOUCHED, Entry, State
from headgate.units import DAY

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.operations import PublishedValues, PublishValue
    from headgate.stores.shm.file import File
    from headgate.stores.shm.layout import Table


# What is too long for a cell: a chain of blocks, always written anew.
#
# A block is the number of the next one and 508 bytes. All free blocks are one chain too; in a block
# that was never used the number is 0, which means the one that follows in the file. Blocks are
# numbered from 1.
#
# A new chain is the beginning of the free one, filled in: the numbers in it stay as they are, as a
# chain's length is known from its cell. So it can be written before anything else is, and whoever
# is killed then leaves the free chain as it was. Only then, together with the cell, the first free
# block changes, and the chain that the cell had before joins the free one.


_NUMBER: Final = struct.Struct("<I")
_DATA: Final = BLOCK - _NUMBER.size


class Blocks:
    """The blocks of one file, in the hands of one transaction. The caller has the turn."""

    __slots__ = ("_count", "_fd", "_first_free", "_start")

    def __init__(self, fd: int, layout: Layout) -> None:
        self._fd = fd
        self._count = layout.blocks
        self._start = layout.blocks_at - BLOCK
        self._first_free: int | None = None

    def read(self, first: int, length: int) -> tuple[bytes, list[int]]:
        """The *length* bytes of the chain that begins with *first*, and its blocks.

        Raises `ValueError` if there is no such chain.
        """
        if length > self._count * _DATA:
            raise ValueError(f"there are no {length} bytes in all blocks")
        blocks, parts = [], []
        block = first
        for _ in range(-(-length // _DATA)):
            self._check(block)
            data = os.pread(self._fd, BLOCK, self._start + block * BLOCK)
            blocks.append(block)
            parts.append(data[_NUMBER.size :])
            block = _NUMBER.unpack_from(data)[0] or block + 1
        return b"".join(parts)[:length], blocks

    def write(self, data: bytes) -> int:
        """Put *data* into free blocks; the first of them. They are free until `changes` is written.

        Raises `StoreError` if there are not enough.
        """
        if self._first_free is None:
            self._first_free = self._number_at(FIRST_FREE_AT) or 1
        first = block = self._first_free
        for at in range(0, len(data), _DATA):
            if block > self._count:
                raise StoreError("the shared memory is full", reason="out_of_memory")
            where = self._start + block * BLOCK
            following = self._number_at(where) or block + 1
            os.pwrite(self._fd, data[at : at + _DATA], where + _NUMBER.size)
            block = following
        self._first_free = block
        return first

    def changes(self, freed: list[list[int]]) -> list[Write]:
        """What makes the chains written so far used, and the *freed* ones free."""
        if self._first_free is None and not freed:
            return []
        first = self._first_free
        if first is None:
            first = self._number_at(FIRST_FREE_AT) or 1
        writes = []
        for chain in freed:
            writes.append((self._start + chain[-1] * BLOCK, _NUMBER.pack(first)))
            first = chain[0]
        writes.append((FIRST_FREE_AT, _NUMBER.pack(first)))
        return writes

    def _check(self, block: int) -> None:
        if not 1 <= block <= self._count:
            raise ValueError(f"there is no block {block}")

    def _number_at(self, where: int) -> int:
        number: int = _NUMBER.unpack(os.pread(self._fd, _NUMBER.size, where))[0]
        return number


_CONTROL: Final = struct.Struct(f"<{MARK.size}s8xq")
_TIME: Final = struct.Struct("<q")


class Spot:
    """The place of a counter: where its cell is or would be, and what was found there."""

    __slots__ = ("algorithm", "at", "blocks", "entry", "is_used", "name", "takes_over")

    def __init__(self, name: bytes, at: int) -> None:
        self.name = name
        self.at = at
        self.algorithm: Algorithm[State] | None = None
        self.entry: Entry = UNTOUCHED
        self.blocks: list[int] = []
        self.is_used = False
        """Whether the cell holds this counter."""
        self.takes_over = False
        """Whether the cell holds another, which is as new."""


class Transaction:
    """The counters that one operation asks for. The caller has the turn until it is over."""

    __slots__ = ("_blocks", "_cleared_at", "_fd", "_file", "_puts", "_reserved", "_spots", "now")

    def __init__(self, file: File, now: int) -> None:
        self._file = file
        self._fd = file.fd
        self.now = now
        self._blocks = Blocks(file.fd, file.layout)
        self._spots: dict[bytes, Spot] = {}
        self._reserved: set[int] = set()
        self._puts: dict[bytes, tuple[Spot, Limit | None, Entry]] = {}
        mark, self._cleared_at = _CONTROL.unpack(os.pread(self._fd, _CONTROL.size, CONTROL_AT))
        if mark != NOTHING:
            if layout_of(self._fd) != file.layout:
                raise EOFError("it is not the file that was opened")
            carry_out(self._fd, mark, file.layout.size)
        if self._cleared_at > now + DAY:  # no clock is set back that far: it is damaged
            self._cleared_at = 0

    def spot(self, group: str, key: str, limit: Limit) -> Spot:
        """Where the counter is or, if it has none yet, would be: two keys may share one."""
        is_slots = isinstance(limit, Concurrency)
        hashes, file = self._file.hashes, self._file
        own = hashes.own(group, key, is_slots=is_slots)
        found = self._spots.get(own) or self._found(file.own, own)
        if found is None:
            shared = hashes.shared(group, own, is_slots=is_slots)
            beside = self._spots.get(shared) or self._found(file.shared, shared)
            found = self._vacant(file.own, own)
            if found is None:
                found = beside or self._vacant(file.shared, shared)
            elif beside is not None and not self._is_over(beside):
                # The key may be one of those that shared it, so it goes on with all they have used;
                # but by itself, or else a counter that many share would never be idle again.
                found.algorithm, found.entry = beside.algorithm, beside.entry
        if found is None:
            raise StoreError("the shared memory is full", reason="out_of_memory")
        self._spots[found.name] = found
        self._reserved.add(found.at)
        return found

    def algorithm(self, limit: Limit) -> Algorithm[State]:
        """The arithmetic of *limit*."""
        return self._file.records.kept(limit).algorithm

    def own_place(self, group: str, key: str, limit: Limit) -> tuple[bytes, int] | None:
        """The name of the counter and where its cell is, if it was asked for and shares none."""
        name = self._file.hashes.own(group, key, is_slots=isinstance(limit, Concurrency))
        spot = self._spots.get(name)
        return None if spot is None else (name, spot.at)

    def load(self, spot: Spot, limit: Limit) -> Entry:
        """The counter at *spot* under *limit*, carried over if it was kept under another."""
        algorithm = self.algorithm(limit)
        if spot.algorithm is None:
            return self._untouched(algorithm)
        state, holds = spot.entry
        holds = open_holds(holds, self.now) if holds else holds
        if spot.algorithm is algorithm or _keeps_all(spot.algorithm, algorithm):
            return Entry(state, holds)
        if state is not None:
            state = carry(spot.algorithm, state, algorithm, self.now)
        self.put(spot, limit, Entry(state, holds))
        return Entry(state, holds)

    def put(self, spot: Spot, limit: Limit, entry: Entry) -> None:
        """Have *entry* kept at *spot* when the transaction is over."""
        self._puts[spot.name] = spot, limit, entry

    def drop(self, group: str, key: str) -> None:
        """Have the counters of *key* in *group* forgotten: its own, or else that it shares."""
        hashes, file = self._file.hashes, self._file
        for is_slots in (False, True):
            name = hashes.own(group, key, is_slots=is_slots)
            own = self._found(file.own, name)
            shared = self._found(file.shared, hashes.shared(group, name, is_slots=is_slots))
            if own is None:
                if shared is not None:
                    self._drop(shared)
            elif shared is None or own.algorithm is None or is_slots:
                self._drop(own)
            else:  # without one of its own it would go on with what others have used
                entry = Entry(own.algorithm.as_new(self.now), {})
                self.put(own, own.algorithm.limit, entry)

    def sweep(self, number: int) -> None:
        """Drop what is as new in one bucket, the shared ones counted after the others."""
        own = self._file.own
        table = own if number < len(own) else self._file.shared
        cells = table.bucket(number if number < len(own) else number - len(own))
        for cell in cells:
            if not cell.is_empty:
                spot = self._read(cell)
                if self._is_over(spot):
                    spot.takes_over = True
                    self._drop(spot)

    def commit(self) -> None:
        """Write all that was put, at once."""
        if not self._puts:
            return
        writes: list[Write] = []
        freed = []
        for spot, limit, entry in self._puts.values():
            if limit is None or (entry.state is None and not entry.holds):
                writes.append((spot.at, EMPTY))
            else:
                record = self._file.records.write(limit, entry)
                is_long = len(record) > INLINE
                first = self._blocks.write(record) if is_long else 0
                head = HEAD.pack(spot.name, len(record), first)
                writes.append((spot.at, head if is_long else head + record))
            if spot.blocks:
                freed.append(spot.blocks)
            if spot.takes_over:
                self._remember_clearing()
        write_all(self._fd, writes + self._blocks.changes(freed))
        self._puts.clear()

    def _drop(self, spot: Spot) -> None:
        self._puts[spot.name] = spot, None, UNTOUCHED

    def _found(self, table: Table, name: bytes) -> Spot | None:
        cell = table.find(name)
        return None if cell is None else self._read(cell)

    def _read(self, cell: Cell) -> Spot:
        """What is in *cell*; a record that makes no sense counts as none."""
        name, length, first = cell.head
        spot = Spot(name, cell.at)
        spot.is_used = True
        try:
            if length <= INLINE:
                record = cell.data[HEAD.size : HEAD.size + length]
            else:
                record, spot.blocks = self._blocks.read(first, length)
            spot.algorithm, spot.entry = self._file.records.read(record)
        except ValueError as error:
            if not self._file.is_damage_told:
                LOG.warning("counters in shared memory are damaged and begin anew: %s", error)
                self._file.is_damage_told = True
            spot.blocks = []
        return spot

    def _vacant(self, table: Table, name: bytes) -> Spot | None:
        """A cell for a new counter: an empty one, or one whose counter is as new."""
        if table.is_full_for(name, self.now):
            return None
        soonest = NEVER
        for cell in table.candidates(name):
            if cell.at in self._reserved:
                continue
            spot = Spot(name, cell.at)
            if cell.is_empty:
                return spot
            old = self._read(cell)
            idle_in = self._idle_in(old)
            if not idle_in:
                spot.takes_over, spot.blocks = True, old.blocks
                return spot
            soonest = min(soonest, idle_in)
        table.remember_full(name, self.now, soonest)
        return None

    def _is_over(self, spot: Spot) -> bool:
        """Whether the counter at *spot* is as new and may go."""
        return not self._idle_in(spot)

    def _idle_in(self, spot: Spot) -> int:
        """In how many nanoseconds the counter at *spot* will be as new; 0 if it is."""
        if spot.algorithm is None:
            return 0
        state, holds = spot.entry
        fresh_in = spot.algorithm.fresh_in(state, self.now) if state is not None else 0
        return max([fresh_in, *(hold.expires_ns - self.now for hold in holds.values())])

    def _untouched(self, algorithm: Algorithm[State]) -> Entry:
        """A new counter. If the clock has been set back to before one was thrown away, the new
        one is as late as that, since it may be the same."""
        late = self._cleared_at
        if self.now >= late or isinstance(algorithm.limit, Concurrency):
            return UNTOUCHED
        return Entry(algorithm.as_new(late), {})

    def _remember_clearing(self) -> None:
        """Before a counter is thrown away: should that be all that happens, no harm is done."""
        if self.now > self._cleared_at:
            self._cleared_at = self.now
            os.pwrite(self._fd, _TIME.pack(self.now), CLEARED_AT)


def _keeps_all(*algorithms: Algorithm[State]) -> bool:
    """Whether all of them are about slots, which are the same under any such limit, or about one
    queue, for whoever waits for however long."""
    if all(isinstance(algorithm.limit, Concurrency) for algorithm in algorithms):
        return True
    queues = {
        algorithm.limit.patient if isinstance(algorithm.limit, LeakyQueue) else None
        for algorithm in algorithms
    }
    return None not in queues and len(queues) == 1


# A counter in shared memory in the hands of one operation.


class Opened(Counting):
    """The counter at *spot* under *limit*."""

    __slots__ = ("_spot", "_transaction")

    def __init__(self, transaction: Transaction, spot: Spot, limit: Limit) -> None:
        state, holds = transaction.load(spot, limit)
        super().__init__(transaction.algorithm(limit), state, holds, transaction.now)
        self._transaction = transaction
        self._spot = spot

    def close(self) -> None:
        if self._is_changed:
            entry = Entry(self._state, self._holds)
            self._transaction.put(self._spot, self._algorithm.limit, entry)


# What several processes of a host make of the same thing.
#
# It is kept as reservations of a counter that nothing is ever charged to: those have a name, in
# which all that is told stands, and lapse by themselves.


_KEPT_UNDER: Final = FixedWindow(1, 1)
"""Some limit: every counter has one."""


def share(operation: PublishValue, transaction: Transaction) -> PublishedValues:
    """Carry *operation* out. A cell that other things share has all that is told of them too."""
    group, key, origin = f"told of {operation.group}", operation.key, operation.origin
    spot = transaction.spot(group, key, _KEPT_UNDER)
    state, holds = transaction.load(spot, _KEPT_UNDER)
    told: dict[str, tuple[str, float, float]] = {}
    places: dict[str, str] = {}
    for name, hold in holds.items():
        match _read(name):
            case [
                its_group,
                its_key,
                str() as who,
                float() as value,
                float() as weight,
                int(lasts),
            ] if its_group == group and its_key == key:
                places[who] = name
                # What lapses later was told before the clock was set back.
                if hold.expires_ns <= transaction.now + 2 * lasts:
                    told[who] = who, value, weight
            case _:
                continue  # of another thing, or damaged
    if operation.weight > 0 and (origin in told or len(told) < MOST_ORIGINS):
        told[origin] = origin, float(operation.value), float(operation.weight)
        kept = {name: hold for name, hold in holds.items() if name != places.get(origin)}
        name = json.dumps([group, key, *told[origin], operation.ttl_ns], separators=(",", ":"))
        kept[name] = Hold(1, transaction.now + operation.ttl_ns)
        transaction.put(spot, _KEPT_UNDER, Entry(state, kept))
    return tuple(told.values())


def _read(name: str) -> object:
    try:
        return json.loads(name)
    except ValueError:
        return None
