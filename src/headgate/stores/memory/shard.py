"""One shard of the memory store: a lock, and the counters of the keys that hash to it.

A counter is in one of two places:

- its own: a table of the group and limit that it is kept under. The table maps keys to plain
  states, which the garbage collector need not visit, and to open reservations if there are any;
- shared: when the store is full, new keys share a fixed number of counters by a hash that callers
  cannot predict. A key that has a counter of its own never loses it to others, and a caller gets
  no fresh counter by spraying keys: sharing only makes a limit stricter.

Counters that are fully reset are swept: a few with each call that consumes, whatever its key, so no
call stalls and no thread is needed.
"""

from __future__ import annotations

import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import Algorithm, carry
from headgate.algorithms.reservations import Holds, expire, held_in, idle_in
from headgate.units import MICROSECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.limits import Limit

SHARDS: Final = 64
"""Locks of a store. One lock makes threads queue: 20 us per check with 8 threads."""
SHARED_COUNTERS: Final = 1024
"""Counters of a group for all keys without room; a multiple of `SHARDS`."""
SWEEP_STEPS: Final = 16
"""Counters and tables that one call examines."""
SWEEP_PAUSE: Final = 100 * MICROSECOND
"""Time between two calls that examine some."""
_LONGEST_ROUND: Final = 10 * MINUTE
"""The longest time between two rounds of the sweep."""

_NEVER: Final = 1 << 63

State = Any
"""The state of a counter, as its algorithm defines it."""
NO_HOLDS: Final[Holds] = {}


class Entry(NamedTuple):
    """A counter: its state, None if untouched, and its reservations."""

    state: State | None
    holds: Holds


UNTOUCHED: Final = Entry(None, NO_HOLDS)


class Untouched(NamedTuple):
    """In a table, the state of an untouched counter: one that has reservations, or was reset.

    Its key is always among the `holds` of the table.
    """

    kept_until: int = 0
    """When a counter that was reset may be dropped: until then the key shares none."""


class Room:
    """A bound on how many things of a kind a store keeps, in all shards together."""

    __slots__ = ("_lock", "_most", "_taken")

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._taken = 0

    @property
    def is_full(self) -> bool:
        """True if there is no room for another."""
        return self._taken >= self._most

    def reserve(self) -> bool:
        """Make room for one more; return False if the store is full."""
        with self._lock:
            if self._taken >= self._most:
                return False
            self._taken += 1
            return True

    def release(self) -> None:
        """Give up the room of one."""
        with self._lock:
            self._taken -= 1

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()


class Table:
    """The counters of one group under one limit that keys have of their own.

    A sweep examines them a little at a time while they change. A round of the sweep begins by
    declaring all to be *aging*, with an empty `live`. Each step takes a few aging ones out and puts
    back what is still of use; a key that is saved becomes live at once. So a round examines every
    counter once, and no step is long.
    """

    __slots__ = ("_due", "_room", "aging", "algorithm", "group", "holds", "is_dropped", "live")

    def __init__(self, algorithm: Algorithm[State], group: Group, room: Room) -> None:
        self.algorithm = algorithm
        self.group = group
        self.live: dict[str, State] = {}
        self.aging: dict[str, State] = {}
        self.holds: dict[str, Holds] = {}
        self.is_dropped = False
        """True if the sweep has removed this table from its group."""
        self._room = room
        self._due = 0
        """When the next round begins."""

    def __len__(self) -> int:
        return len(self.live) + len(self.aging)

    def __iter__(self) -> Iterator[str]:
        return chain(self.live, self.aging)

    def __contains__(self, key: str) -> bool:
        return key in self.live or key in self.aging

    def begin(self, key: str, cost: int) -> bool:
        """Make room for a new counter of *key* that *cost* fits into.

        Returns False if there is no room, if *key* is empty, which is an error of the caller, or if
        it may have a counter here or elsewhere.
        """
        is_new = key not in self.live and key not in self.aging and self.group.is_plain
        if not key or not is_new or self.is_dropped or self.holds or cost > self.algorithm.quota:
            return False
        return self._room.reserve()

    def give_up(self) -> None:
        """Undo `begin`."""
        self._room.release()

    def entry(self, key: str) -> Entry:
        """Return the counter of *key*, which is here."""
        state = self.live.get(key)
        if state is None:
            state = self.aging.get(key)
        return Entry(None if type(state) is Untouched else state, self.holds.get(key, NO_HOLDS))

    def save(self, key: str, entry: Entry) -> None:
        """Keep *entry* as the counter of *key*."""
        self._put(key, Untouched() if entry.state is None else entry.state)
        if entry.holds:
            self.holds[key] = entry.holds
        elif self.holds:
            self.holds.pop(key, None)

    def take_out(self, key: str) -> None:
        """Remove the counter of *key*, which is here, and keep its room."""
        if self.live.pop(key, None) is None:
            self.aging.pop(key, None)
        self.holds.pop(key, None)

    def remove(self, key: str) -> None:
        """Drop the counter of *key*, which is here."""
        self.take_out(key)
        self._room.release()

    def reset(self, key: str, now: int) -> None:
        """Make the counter of *key*, which is here, untouched, and keep it for a while."""
        self._put(key, Untouched(now + self.algorithm.limit.period_ns))
        self.holds[key] = NO_HOLDS

    def used(self, key: str, now: int) -> int:
        """Return what is used and held of the counter of *key*."""
        state, holds = expire(self.algorithm, *self.entry(key), now)
        return held_in(holds) + self.algorithm.used(state, now)

    def _is_idle(self, key: str, value: State, now: int) -> bool:
        """Return True if a counter is fully reset; its reservations are dropped then."""
        is_untouched = type(value) is Untouched
        holds = self.holds.get(key)
        if holds and idle_in(self.algorithm, None if is_untouched else value, holds, now):
            return False
        if is_untouched:
            ends_in = value.kept_until - now
            is_kept = 0 < ends_in <= self.algorithm.limit.period_ns
        else:
            is_kept = self.algorithm.fresh_in(value, now) > 0
        if is_kept:
            return False
        self.holds.pop(key, None)
        return True

    def examine(self, most: int, now: int, *, is_urgent: bool = False) -> int:
        """Examine up to *most* counters if a round is due or it *is_urgent*; return how many."""
        if not self.aging:
            interval = min(max(self.algorithm.limit.period_ns, SECOND), _LONGEST_ROUND)
            if now < self._due <= now + interval and not is_urgent:
                return 0
            self._due = now + interval
            self.aging, self.live = self.live, {}
        count = min(most, len(self.aging))
        for _ in range(count):
            key, value = self.aging.popitem()
            if self._is_idle(key, value, now):
                self._room.release()
            else:
                self.live[key] = value
        return count

    def _put(self, key: str, state: State) -> None:
        if self.aging:
            self.aging.pop(key, None)
        self.live[key] = state


class Group:
    """The counters of one group in one shard. A key has one, under one of the group's limits.

    Slots are not consumption: they stand in a group of their own.
    """

    __slots__ = ("_room", "_shared", "name", "tables")

    def __init__(self, name: tuple[str, bool], room: Room) -> None:
        self.name = name
        self.tables: dict[Limit, Table] = {}
        self._room = room
        self._shared: dict[int, tuple[Algorithm[State], Entry]] = {}

    def __len__(self) -> int:
        return sum(len(table) for table in self.tables.values()) + len(self._shared)

    @property
    def is_plain(self) -> bool:
        """True if every key with a counter has it in the one table of this group."""
        return len(self.tables) == 1 and not self._shared

    def home_of(self, key: str) -> Table | None:
        """Return the table that has the counter of *key*; None if it has none of its own."""
        for table in self.tables.values():
            if key in table:
                return table
        return None

    def place(self, key: str, now: int) -> str | int:
        """Return what names the counter of *key*: the key, or the number of a shared counter."""
        if self.home_of(key) is not None:
            return key
        is_shared = self._room.is_full or self._shared_entry(key, now) is not None
        return _number(key) if is_shared else key

    def load(self, key: str, algorithm: Algorithm[State], now: int) -> tuple[Entry, bool]:
        """Return the counter of *key* under *algorithm*; True if its limit has changed.

        It is then converted, and stored so when it is saved: a peek leaves it as it is.
        """
        table = self.home_of(key)
        if table is not None:
            old, entry = table.algorithm, table.entry(key)
        else:
            shared = self._shared_entry(key, now)
            if shared is None:
                return UNTOUCHED, False
            old, entry = shared
        if old.limit == algorithm.limit:
            return entry, False
        state, holds = expire(old, *entry, now) if entry.holds else entry
        if state is not None:
            state = carry(old, state, algorithm, now)
        return Entry(state, holds), True

    def save(self, key: str, algorithm: Algorithm[State], entry: Entry, now: int) -> None:
        """Keep *entry* as the counter of *key*, under *algorithm*."""
        if entry.state is None and not entry.holds:
            self.drop(key)
            return
        table = self.home_of(key)
        if table is not None and table.algorithm.limit != algorithm.limit:
            table.take_out(key)
            self._table(algorithm).save(key, entry)
        elif table is not None:
            table.save(key, entry)
        elif self._shared_entry(key, now) is not None or not self._room.reserve():
            self._shared[_number(key)] = algorithm, entry
        else:
            self._table(algorithm).save(key, entry)

    def reset(self, key: str, now: int) -> None:
        """Make the counter of *key* untouched: its own, or else the one that it shares.

        Where keys share counters it keeps its own, or it would take over what others have used.
        """
        table = self.home_of(key)
        if table is not None and (self._room.is_full or self._shared_entry(key, now) is not None):
            table.reset(key, now)
        else:
            self.drop(key)

    def drop(self, key: str) -> None:
        """Forget the counter of *key*: its own, or else the one that it shares."""
        table = self.home_of(key)
        if table is not None:
            table.remove(key)
        else:
            self._shared.pop(_number(key), None)

    def sweep_shared(self, now: int) -> int:
        """Drop the shared counters that are fully reset; return how many counters there were."""
        count = len(self._shared)
        for number, (algorithm, entry) in list(self._shared.items()):
            if _is_idle(algorithm, entry, now):
                del self._shared[number]
        return count

    def _table(self, algorithm: Algorithm[State]) -> Table:
        table = self.tables.get(algorithm.limit)
        if table is None:
            table = self.tables[algorithm.limit] = Table(algorithm, self, self._room)
        return table

    def _shared_entry(self, key: str, now: int) -> tuple[Algorithm[State], Entry] | None:
        found = self._shared.get(_number(key))
        return None if found is None or _is_idle(*found, now) else found


def _number(key: str) -> int:
    return hash(key) % SHARED_COUNTERS


def _is_idle(algorithm: Algorithm[State], entry: Entry, now: int) -> bool:
    return not idle_in(algorithm, *entry, now)


class Shard:
    """A lock and what it guards. Callers of all methods hold the lock."""

    __slots__ = ("_examined", "_room", "groups", "lock")

    def __init__(self, room: Room) -> None:
        self.lock = threading.Lock()
        self.groups: dict[tuple[str, bool], Group] = {}
        self._room = room
        self._examined: list[Table] | None = None
        """Tables that this round of the sweep has yet to examine."""

    def group(self, name: str, *, has_slots: bool = False) -> Group:
        """Return the group *name*, a new one if there is none."""
        found = self.groups.get((name, has_slots))
        if found is None:
            found = self.groups[name, has_slots] = Group((name, has_slots), self._room)
        return found

    def groups_of(self, name: str) -> list[Group]:
        """Return the groups called *name*: of consumption, of slots."""
        return [self.groups[name, slots] for slots in (False, True) if (name, slots) in self.groups]

    def examine(self, most: int, now: int, *, is_urgent: bool) -> int:
        """Examine up to *most* counters and tables; return how many."""
        count = 0
        if self._examined is None:
            self._examined = []
            for group in list(self.groups.values()):
                count += group.sweep_shared(now)
                self._examined.extend(group.tables.values())
                self._drop_if_empty(group)
        while self._examined and count < most:
            table = self._examined[-1]
            count += 1 + table.examine(most - count, now, is_urgent=is_urgent)
            if table.aging:
                break
            self._examined.pop()
            if not len(table):
                table.is_dropped = True
                table.group.tables.pop(table.algorithm.limit, None)
                self._drop_if_empty(table.group)
        return count

    def is_examined(self) -> bool:
        """Return True, and forget it, if the round of the sweep has ended here."""
        if self._examined:
            return False
        self._examined = None
        return True

    def _drop_if_empty(self, group: Group) -> None:
        if not group.tables and not len(group):
            self.groups.pop(group.name, None)


class Sweep:
    """The rounds of sweeping a store, shard by shard; unless *is_timed*, only urgent ones."""

    __slots__ = ("_is_timed", "_lock", "_next", "_shards", "_visited", "due", "since")

    def __init__(self, shards: Sequence[Shard], now: int, *, is_timed: bool = True) -> None:
        self._lock = threading.Lock()
        self._shards = shards
        self._next = 0
        self._visited = 0
        self._is_timed = is_timed
        self.due = now + SECOND if is_timed else _NEVER
        """When there is something to do, and"""
        self.since = now if is_timed else -_NEVER
        """when that was determined: a clock before this has stepped back."""

    def step(self, now: int, *, is_urgent: bool = False) -> None:
        """Examine some, if it is time or *is_urgent*. The caller holds no lock of a shard."""
        with self._lock:
            if self.since <= now < self.due and not is_urgent:
                return
            left = SWEEP_STEPS
            while left > 0 and self._next < len(self._shards):
                shard = self._shards[self._next]
                with shard.lock:
                    visited = shard.examine(left, now, is_urgent=is_urgent)
                    self._next += shard.is_examined()
                left -= visited
                self._visited += visited
            pause = SWEEP_PAUSE
            if self._next == len(self._shards):
                pause = min(SECOND + self._visited * 10 * MICROSECOND, _LONGEST_ROUND)
                self._next = self._visited = 0
            if self._is_timed:
                self.since, self.due = now, now + pause

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()
