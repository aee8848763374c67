"""The counters of one group under one limit: finding them, keeping them few.

Where a counter is:

- `live`: key -> state, the plain case and the only one the fast path knows;
- `held`: key -> state and open reservations;
- `aging`: what was live when the last sweep began and has not been looked at since;
- `overflow`: when the store is full, new keys share a fixed number of counters, chosen by a hash
  nobody outside can predict. A key that has one of its own never loses it to others, and a caller
  cannot get a fresh counter by spraying keys: sharing only ever makes the limit stricter.

Sweeping is spread over the calls. A sweep begins by declaring everything live to be aging and
starting with an empty `live`; each call then examines a few aging counters, throws away those that
are as new and brings back the rest. Whoever asks for an aging key brings it back at once. So no
call ever does more than a few steps, and no thread is needed.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import Algorithm, carry
from headgate.algorithms.holds import Holds, open_holds
from headgate.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.limits import Limit

SWEEP_STEPS: Final = 4
"""Aging counters examined by one call."""
OVERFLOW_SLOTS: Final = 1024
"""Counters that all keys share for which there is no room."""

State = Any
"""The state of a counter: what its algorithm makes of it."""


class Entry(NamedTuple):
    """A counter: its state, None if untouched, and its open reservations."""

    state: State | None
    holds: Holds


NO_HOLDS: Final[Holds] = {}
_UNTOUCHED: Final = Entry(None, NO_HOLDS)


class Room:
    """How many counters a store has, and may have."""

    __slots__ = ("most", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


Group = dict["Limit", "Counters"]
"""All counters of one name, by the limit they are kept under. A key is under one of them."""


class Counters:
    """The counters of one group under one limit. The caller has the store's turn."""

    __slots__ = (
        "_aging",
        "_group",
        "_held",
        "_interval",
        "_lapses",
        "_live",
        "_overflow",
        "_rebind",
        "_room",
        "algorithm",
        "due",
    )

    def __init__(self, algorithm: Algorithm[State], group: Group, room: Room, now: int) -> None:
        self.algorithm = algorithm
        self._group = group
        self._room = room
        self._live: dict[str, State] = {}
        self._aging: dict[str, State] = {}
        self._held: dict[str, Entry] = {}
        self._overflow: dict[int, Entry] = {}
        self._lapses: list[tuple[int, str]] = []
        self._rebind: list[Callable[[dict[str, State], int], None]] = []
        self._interval = min(max(algorithm.limit.period_ns, SECOND), 10 * MINUTE)
        self.due = now + self._interval

    def __len__(self) -> int:
        return len(self._live) + len(self._aging) + len(self._held) + len(self._overflow)

    def watch(self, rebind: Callable[[dict[str, State], int], None]) -> None:
        """Tell *rebind* now, and whenever they change, where live counters are and what is due."""
        self._rebind.append(rebind)
        rebind(self._live, self.due)

    @property
    def is_watched(self) -> bool:
        return bool(self._rebind)

    def load(self, key: str, now: int) -> Entry:
        """The counter of *key*, wherever it is."""
        state = self._live.get(key)
        if state is not None:
            return Entry(state, NO_HOLDS)
        entry = self._held.get(key) or self._recover(key, now) or self._shared(key, now)
        if entry.holds:
            return Entry(entry.state, open_holds(entry.holds, now))
        return entry

    def save(self, key: str, entry: Entry, now: int) -> None:
        """Keep *entry* as the counter of *key*; nothing is kept of one that is as new."""
        if entry.state is not None and not entry.holds and key in self._live:
            self._live[key] = entry.state
            return
        is_own = key in self._live or key in self._held
        if not is_own and not self._make_room(key, now):
            self._overflow[_slot(key)] = entry
            return
        before = self._held.pop(key, None)
        if entry.holds:
            self._live.pop(key, None)
            self._held[key] = entry
            if (lapse := _last_lapse(entry)) > _last_lapse(before):
                heappush(self._lapses, (lapse, key))
        elif entry.state is not None:
            self._live[key] = entry.state
        else:
            self._live.pop(key, None)
        self._room.taken += (key in self._live or key in self._held) - is_own

    def forget(self, key: str) -> None:
        """Drop the counter of *key* under this limit and all others of its group."""
        for counters in self._group.values():
            counters.extract(key)
            counters.drop_shared(key)

    def drop_shared(self, key: str) -> None:
        """Drop the counter that *key* shares, if it does."""
        self._overflow.pop(_slot(key), None)

    def extract(self, key: str) -> Entry | None:
        """Take the counter of *key* out, if there is one of its own here."""
        entry = self._held.pop(key, None)
        for place in (self._live, self._aging):
            state = place.pop(key, None)
            if state is not None:
                entry = Entry(state, NO_HOLDS)
        if entry is not None:
            self._room.taken -= 1
        return entry

    def sweep(self, now: int) -> None:
        """Do a few steps of the sweep, or begin one if it is time."""
        while self._lapses and self._lapses[0][0] <= now:
            _, key = heappop(self._lapses)
            self._tidy(key, now)
        if now < self.due:
            return
        if not self._aging:
            self._aging, self._live = self._live, {}
        for _ in range(min(SWEEP_STEPS, len(self._aging))):
            key, state = self._aging.popitem()
            if self.algorithm.fresh_in(state, now):
                self._live[key] = state
            else:
                self._room.taken -= 1
        self.due = now if self._aging else now + self._interval
        for rebind in self._rebind:
            rebind(self._live, self.due)

    def _tidy(self, key: str, now: int) -> None:
        """Put a counter whose reservations have lapsed back among the plain ones."""
        entry = self._held.get(key)
        if entry is None:
            return
        holds = open_holds(entry.holds, now)
        if not holds:
            self.save(key, Entry(entry.state, holds), now)

    def _recover(self, key: str, now: int) -> Entry | None:
        """Bring an aging counter of *key*, or one kept under another limit, back to life."""
        state = self._aging.pop(key, None)
        if state is not None:
            self._live[key] = state
            return Entry(state, NO_HOLDS)
        if len(self._group) == 1:
            return None
        for counters in self._group.values():
            found = None if counters is self else counters.extract(key)
            if found is not None:
                entry = self._carried(counters, found, now)
                self.save(key, entry, now)
                return entry
        return None

    def _carried(self, old: Counters, entry: Entry, now: int) -> Entry:
        if entry.state is None:
            return entry
        return Entry(carry(old.algorithm, entry.state, self.algorithm, now), entry.holds)

    def _shared(self, key: str, now: int) -> Entry:
        """The counter that *key* shares, if the store has been full and that is not over yet."""
        entry = self._overflow.get(_slot(key)) if self._overflow else None
        if entry is None:
            return _UNTOUCHED
        if self._is_over(entry, now):
            del self._overflow[_slot(key)]
            return _UNTOUCHED
        return entry

    def _make_room(self, key: str, now: int) -> bool:
        """Whether *key* may have a counter of its own."""
        if self._overflow and _slot(key) in self._overflow:
            return False
        if self._room.taken >= self._room.most:
            self.due = min(self.due, now)
            self.sweep(now)
        return self._room.taken < self._room.most

    def _is_over(self, entry: Entry, now: int) -> bool:
        return not self.algorithm.fresh_in(entry.state, now) and not open_holds(entry.holds, now)


def _slot(key: str) -> int:
    return hash(key) % OVERFLOW_SLOTS


def _last_lapse(entry: Entry | None) -> int:
    return max((hold.expires_ns for hold in entry.holds.values()), default=0) if entry else 0
