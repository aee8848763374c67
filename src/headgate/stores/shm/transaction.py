"""All that one operation reads and writes: written at once at its end, or not at all."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final

from headgate.algorithms import Algorithm, carry
from headgate.algorithms.holds import open_holds
from headgate.errors import StoreError
from headgate.limits import Concurrency, LeakyQueue
from headgate.stores.shm.blocks import Blocks
from headgate.stores.shm.cells import EMPTY, HEAD, INLINE, NEVER, Cell
from headgate.stores.shm.journal import MARK, NOTHING, Write, carry_out, write_all
from headgate.stores.shm.layout import CLEARED_AT, CONTROL_AT
from headgate.stores.shm.place import LOG, layout_of
from headgate.stores.shm.records import UNTOUCHED, Entry, State
from headgate.units import DAY

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.shm.cells import Table
    from headgate.stores.shm.file import File

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
