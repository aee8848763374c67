"""The counters of one group under one limit: where they are, and whether there is room.

Where a counter is:

- `plain`: key -> state, the common case; its live part is the only one the fast path knows;
- `held`: key -> state and open reservations;
- `overflow`: when the store is full, new keys share a fixed number of counters, chosen by a hash
  nobody outside can predict. A key that has one of its own never loses it to others, and a caller
  cannot get a fresh counter by spraying keys: sharing only ever makes the limit stricter.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from headgate.algorithms import Algorithm, ConcurrencyAlgorithm, carry
from headgate.algorithms.reservations import Holds, open_holds
from headgate.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.limits import Limit
    from headgate.stores.memory.tables import Margin


# A dict that can be gone through a little at a time while it changes.
#
# Going through it begins by declaring everything on it to be *aging* and starting with an empty
# `live`. A few aging items are then taken at a time; whoever asks for an aging key brings it back
# at once. So nothing is looked at twice in a round, nothing is missed, and no step is long.


K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """Values by key, some live, some aging. No value may be None."""

    __slots__ = ("aging", "live")

    def __init__(self) -> None:
        self.live: dict[K, V] = {}
        self.aging: dict[K, V] = {}

    def __iter__(self) -> Iterator[K]:
        return chain(self.live, self.aging)

    def __len__(self) -> int:
        return len(self.live) + len(self.aging)

    def __contains__(self, key: K) -> bool:
        return key in self.live or key in self.aging

    def get(self, key: K) -> V | None:
        """The value of *key*, live from now on."""
        value = self.live.get(key)
        if value is None and self.aging:
            value = self.aging.pop(key, None)
            if value is not None:
                self.live[key] = value
        return value

    def look(self, key: K) -> V | None:
        """The value of *key*, live or aging as it was."""
        value = self.live.get(key)
        return self.aging.get(key) if value is None else value

    def put(self, key: K, value: V) -> None:
        """Make *value* the value of *key*, live from now on."""
        if self.aging:
            self.aging.pop(key, None)
        self.live[key] = value

    def pop(self, key: K) -> V | None:
        """Take the value of *key* off the shelf."""
        value = self.live.pop(key, None)
        return self.aging.pop(key, None) if value is None else value

    def begin_round(self) -> None:
        """Declare everything to be aging, if nothing is."""
        if not self.aging:
            self.aging, self.live = self.live, {}

    def take_some(self, most: int) -> list[tuple[K, V]]:
        """Take up to *most* aging items off the shelf, to be put back or not."""
        return [self.aging.popitem() for _ in range(min(most, len(self.aging)))]


SWEEP_STEPS: Final = 4
"""Counters examined by one call."""
OVERFLOW_SLOTS: Final = 1024
"""Counters that all keys share for which there is no room."""

State = Any
"""The state of a counter: what its algorithm makes of it."""
NO_HOLDS: Final[Holds] = {}


class Entry(NamedTuple):
    """A counter: its state, None if untouched, and its open reservations."""

    state: State | None
    holds: Holds


_UNTOUCHED: Final = Entry(None, NO_HOLDS)


class Room:
    """How many counters a store has, and may have; and when one was last thrown away."""

    __slots__ = ("cleared_at", "most", "taken")

    def __init__(self, most: int, now: int) -> None:
        self.most = most
        self.taken = 0
        self.cleared_at = now


Group = dict["Limit", "Counters"]
"""All counters of one name, by the limit they are kept under. A key is under one of them."""


class Counters:
    """The counters of one group under one limit. The caller has the store's turn."""

    __slots__ = ("_group", "_held", "_overflow", "_plain", "_room", "algorithm", "name")

    def __init__(self, algorithm: Algorithm[State], name: str, group: Group, room: Room) -> None:
        self.algorithm = algorithm
        self.name = name
        self._group = group
        self._room = room
        self._plain: Shelf[str, State] = Shelf()
        self._held: Shelf[str, Entry] = Shelf()
        self._overflow: Shelf[int, Entry] = Shelf()

    def __len__(self) -> int:
        return len(self._plain) + len(self._held) + len(self._overflow)

    @property
    def plain(self) -> Shelf[str, State]:
        """The counters without reservations."""
        return self._plain

    @property
    def has_slots(self) -> bool:
        return isinstance(self.algorithm, ConcurrencyAlgorithm)

    @property
    def sweep_interval(self) -> int:
        """How many nanoseconds to let pass between two rounds."""
        return min(max(self.algorithm.limit.period_ns, SECOND), 10 * MINUTE)

    @property
    def is_of_use(self) -> bool:
        """Whether anything is kept here or anybody is about to."""
        return len(self) > 0

    def place_of(self, key: str) -> str | int:
        """Where the counter of *key* is, or will be: two keys may share one."""
        if key not in self._plain and key not in self._held:
            slot = _slot(key)
            if self._room.taken >= self._room.most or slot in self._overflow:
                return slot
        return key

    def own_keys(self) -> Iterator[str]:
        """The keys that have a counter of their own here, perhaps an idle one."""
        return chain(self._plain, self._held)

    def used(self, key: str, now: int) -> int:
        """What is used and held of the counter that *key* has here of its own; 0 if it has none."""
        entry = self._held.look(key) or Entry(self._plain.look(key), NO_HOLDS)
        held = sum(hold.amount for hold in open_holds(entry.holds, now).values())
        return held + (0 if entry.state is None else self.algorithm.used(entry.state, now))

    def home_of(self, key: str, now: int) -> Counters:
        """The counters among which *key* has one of its own that is in use, under whichever limit
        of its group; these if there is none."""
        for other in self._group.values():
            if other is not self and not other.has_slots and other.used(key, now):
                return other
        return self

    def load(self, key: str, now: int) -> Entry:
        """The counter of *key*, wherever it is."""
        state = self._plain.get(key)
        if state is not None:
            return Entry(state, NO_HOLDS)
        entry = self._held.get(key) or self._carried_over(key, now) or self._shared(key, now)
        if entry.holds:
            return Entry(entry.state, open_holds(entry.holds, now))
        return entry

    def save(self, key: str, entry: Entry, now: int) -> None:
        """Keep *entry* as the counter of *key*; nothing is kept of one that is as new."""
        live = self._plain.live
        if key in live and not entry.holds and entry.state is not None:
            live[key] = entry.state  # the common case
        elif key in self._plain or key in self._held or self._make_room(key, now):
            self._keep(key, entry)
        elif entry.holds or entry.state is not None:
            self._overflow.put(_slot(key), entry)
        else:
            self._overflow.pop(_slot(key))

    def forget(self, key: str) -> None:
        """Drop the counter of *key* under this limit and all others of its group."""
        found = [counters.extract(key) for counters in self._group.values()]
        if not any(found):
            for counters in self._group.values():
                counters.extract_shared(key)

    def extract(self, key: str) -> Entry | None:
        """Take the counter of *key* out, if there is one of its own here."""
        entry = self._held.pop(key)
        if entry is None and (state := self._plain.pop(key)) is not None:
            entry = Entry(state, NO_HOLDS)
        if entry is not None:
            self._room.taken -= 1
        return entry

    def extract_shared(self, key: str) -> Entry | None:
        """Take the counter out that *key* shares here, if it does."""
        return self._overflow.pop(_slot(key))

    def examine_some(self, now: int) -> bool:
        """Do a few steps of a round; whether there is more to do in it."""
        if not self._is_in_a_round:
            self._begin_round()
        for key, state in self._plain.take_some(SWEEP_STEPS):
            self._room.taken -= 1
            if not self._is_over(Entry(state, NO_HOLDS), now):
                self._keep(key, Entry(state, NO_HOLDS))
        for key, entry in self._held.take_some(SWEEP_STEPS):
            self._room.taken -= 1
            if not self._is_over(entry, now):
                self._keep(key, Entry(entry.state, open_holds(entry.holds, now)))
        for slot, entry in self._overflow.take_some(SWEEP_STEPS):
            if not self._is_over(entry, now):
                self._overflow.put(slot, entry)
        return self._is_in_a_round

    @property
    def _is_in_a_round(self) -> bool:
        return bool(self._plain.aging or self._held.aging or self._overflow.aging)

    def _begin_round(self) -> None:
        self._plain.begin_round()
        self._held.begin_round()
        self._overflow.begin_round()

    def _keep(self, key: str, entry: Entry) -> None:
        """Put *entry* where it belongs."""
        was_there = key in self._plain or key in self._held
        if entry.holds:
            self._plain.pop(key)
            self._held.put(key, entry)
        elif entry.state is not None:
            if self._held:
                self._held.pop(key)
            self._plain.put(key, entry.state)
        else:
            self._plain.pop(key)
            self._held.pop(key)
        is_there = bool(entry.holds) or entry.state is not None
        self._room.taken += is_there - was_there

    def _carried_over(self, key: str, now: int) -> Entry | None:
        """The counter of *key* that was kept under another limit, if there is one."""
        if len(self._group) == 1:
            return None
        for other in self._group.values():
            if other is self or other.has_slots != self.has_slots:
                continue  # slots are not consumption: the two kinds stand side by side
            own = other.extract(key)
            if own is not None:
                entry = self._carry(other, own, now)
                self._keep(key, entry)
                return entry
            if _slot(key) not in self._overflow:
                shared = other.extract_shared(key)
                if shared is not None:
                    self._overflow.put(_slot(key), self._carry(other, shared, now))
        return None

    def _carry(self, old: Counters, entry: Entry, now: int) -> Entry:
        if entry.state is None:
            return entry
        return Entry(carry(old.algorithm, entry.state, self.algorithm, now), entry.holds)

    def _shared(self, key: str, now: int) -> Entry:
        """The counter that *key* shares, if the store has been full and that is not over yet."""
        entry = self._overflow.get(_slot(key)) if self._overflow else None
        if entry is not None and not self._is_over(entry, now):
            return entry
        if entry is not None:
            self._overflow.pop(_slot(key))
        return self._untouched(now)

    def _untouched(self, now: int) -> Entry:
        """A new counter. If the clock has been set back to before one was thrown away, the new
        one is as late as that, since it may be the same."""
        late = self._room.cleared_at
        if now >= late or self.has_slots:
            return _UNTOUCHED
        return Entry(self.algorithm.as_new(late), NO_HOLDS)

    def _make_room(self, key: str, now: int) -> bool:
        """Whether *key*, a new one, may have a counter of its own."""
        if self._overflow and _slot(key) in self._overflow:
            return False
        if self._room.taken >= self._room.most:
            self.examine_some(now)
        return self._room.taken < self._room.most

    def _is_over(self, entry: Entry, now: int) -> bool:
        """Whether *entry* is as new and may go; it is remembered that one went."""
        if self.algorithm.fresh_in(entry.state, now) or open_holds(entry.holds, now):
            return False
        self._room.cleared_at = max(self._room.cleared_at, now)
        return True


def _slot(key: str) -> int:
    return hash(key) % OVERFLOW_SLOTS


# Throwing away what is as new, a few steps with each call, whichever counters the call is for.
#
# Each table of counters is due for a round from time to time. The tables wait in order of when that
# is; each call does a few steps on the first, if it is due. So no call stalls, no thread is needed,
# and a table that nobody asks any more is emptied all the same, and then dropped.


if TYPE_CHECKING:
    Table: TypeAlias = Counters | Margin[Any]

NEVER: Final = 2**63


class Sweep:
    """The tables of a store, and when the next of them is due. The caller has the turn."""

    __slots__ = ("_drop", "_order", "_origin", "_waiting", "due")

    def __init__(self, drop: Callable[[Table], None], origin: int) -> None:
        self._drop = drop
        self._origin = origin
        self._order = count()
        self._waiting: list[tuple[int, int, Table]] = []
        self.due = NEVER
        """When there is something to do, in nanoseconds since *origin*; in the past, if now."""

    def add(self, table: Table, now: int) -> None:
        heappush(self._waiting, self._next_round(table, now))
        self.due = self._waiting[0][0]

    def step(self, now: int) -> None:
        """Do a few steps, if something is due."""
        since_origin = now - self._origin
        if since_origin >= self.due:
            self._step(now)
        if since_origin >= self.due:
            self._step(now)

    def _step(self, now: int) -> None:
        if not self._waiting:
            return
        table = self._waiting[0][2]
        if table.examine_some(now):
            return
        if table.is_of_use:
            heapreplace(self._waiting, self._next_round(table, now))
        else:
            heappop(self._waiting)
            self._drop(table)
        self.due = self._waiting[0][0] if self._waiting else NEVER

    def _next_round(self, table: Table, now: int) -> tuple[int, int, Table]:
        return now - self._origin + table.sweep_interval, next(self._order), table
