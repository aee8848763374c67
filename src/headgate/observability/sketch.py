"""Which keys are hot: a space-saving sketch whose counts fade.

Every key counts what was asked for, a unit less the longer ago it was: half of it after a
half-life. At a steady rate of r units a second this sum settles at `r * half-life / ln 2`, which is
how it is read as a rate; after one half-life of load it has come half of the way.

No more than twice *capacity* keys are known. When there are as many, the lesser half is dropped and
the largest count among them is the *floor*: no key that is not known can have more. So a key that
comes in (again) may have been asked for as much before: its count is what is surely known, and the
floor is its error. Like the counts, floor and errors fade.

What this promises, with T the rate of all keys together and m the capacity:

- a key's true rate is at least `per_second` and at most `per_second + error` (to about one percent,
  as the fading goes in steps);
- no error exceeds T / m, so a key with more than T / m of its own is always known;
- sprayed keys raise errors, never rates: each of them is only as hot as it is.

The second holds as for the classic sketch: all counts with their errors add up to no more than what
was asked for, since those that come in between two droppings bring in as many floors as those that
are dropped take out at least; and the better half has m counts of at least the floor.

To fade all counts at once, later units weigh more instead: `2 ** (age of the sketch / half-life)`.
From time to time the weights start at 1 again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from heapq import nlargest
from typing import Final

from headgate.errors import OptionError
from headgate.units import SECOND

DEFAULT_HALF_LIFE_NS: Final = SECOND
LONGEST_KEY: Final = 200
"""Characters of a key above which it is known by its beginning and a digest, so that long keys
take no more memory than short ones."""

_STEPS: Final = 64
"""How often the weight changes in a half-life."""
_LONGEST_ERA: Final = 64
"""Half-lives after which the weights start at 1 again."""
_NEGLIGIBLE: Final = 1e-6
"""A count, in units of now, that is forgotten when the weights start anew."""

_Entry = list[float]
"""What a key surely has, and its error: in weighted units."""


@dataclass(frozen=True, slots=True)
class Heavy:
    """A key that much is asked of: at least *per_second* units, at most *error* more."""

    group: str
    key: str
    per_second: float
    error: float


class _Era:
    """The counts between two times that the weights start at 1."""

    __slots__ = ("began_ns", "entries", "floor", "next_ns", "per_second", "weight")

    def __init__(self, began_ns: int, entries: dict[tuple[str, str], _Entry], floor: float) -> None:
        self.began_ns = began_ns
        self.entries = entries
        self.floor = floor
        self.next_ns = began_ns
        self.weight = 1.0
        self.per_second = 0.0


class HeavyHitters:
    """The hottest keys, in bounded memory. Adding is O(1), amortised over *capacity* new keys.

    Threads may share one without a lock. When two add at the same moment one amount may be lost,
    and with it some of an estimate; nothing else can go wrong, and a fork leaves nothing locked.
    """

    def __init__(self, capacity: int = 1024, *, half_life_ns: int = DEFAULT_HALF_LIFE_NS) -> None:
        if capacity < 1:
            raise OptionError(f"capacity is {capacity}; expected at least 1 key")
        if half_life_ns < _STEPS:
            raise OptionError(f"half_life_ns is {half_life_ns}; expected at least {_STEPS}")
        self.capacity = capacity
        self._half_life_ns = half_life_ns
        self._era: _Era | None = None

    def __len__(self) -> int:
        """How many keys are known."""
        era = self._era
        return 0 if era is None else len(era.entries)

    def add(self, group: str, key: str, amount: int, now_ns: int) -> float:
        """Count *amount* for a key; the units per second that are surely asked of it."""
        era = self._era
        if era is None or now_ns >= era.next_ns:
            era = self._faded(now_ns)
        if len(key) > LONGEST_KEY:
            key = _shortened(key)
        entry = era.entries.get((group, key))
        if entry is None:
            entry = self._entered(era, (group, key))
        count = entry[0] + amount * era.weight
        entry[0] = count
        return count * era.per_second

    def per_second(self, group: str, key: str, now_ns: int) -> float:
        """The units per second that are surely asked of a key."""
        era = self._faded(now_ns)
        if len(key) > LONGEST_KEY:
            key = _shortened(key)
        entry = era.entries.get((group, key))
        return 0.0 if entry is None else entry[0] * era.per_second

    def top(self, count: int, now_ns: int) -> list[Heavy]:
        """The *count* hottest keys, the hottest first."""
        era = self._faded(now_ns)
        rate = era.per_second
        found = nlargest(count, era.entries.copy().items(), key=lambda item: item[1][0])
        return [
            Heavy(group, key, sure * rate, error * rate) for (group, key), (sure, error) in found
        ]

    def _entered(self, era: _Era, name: tuple[str, str]) -> _Entry:
        if len(era.entries) >= 2 * self.capacity:
            self._drop_lesser(era)
        entry = era.entries[name] = [0.0, era.floor]
        return entry

    def _drop_lesser(self, era: _Era) -> None:
        """Drop all but the *capacity* largest counts, errors included."""
        ranked = sorted(era.entries.copy().items(), key=lambda item: sum(item[1]), reverse=True)
        for _, entry in ranked[self.capacity : self.capacity + 1]:
            era.floor = max(era.floor, sum(entry))
        era.entries = dict(ranked[: self.capacity])

    def _faded(self, now_ns: int) -> _Era:
        """The era of *now_ns* with the weight of that moment. Time that goes back stands still."""
        era = self._era
        if era is None:
            era = self._era = _Era(now_ns, {}, 0.0)
        if now_ns < era.next_ns:
            return era
        age = (now_ns - era.began_ns) / self._half_life_ns
        if age >= _LONGEST_ERA:
            era = self._era = self._renewed(era, now_ns, 2.0**-age)
            age = 0.0
        era.weight = weight = 2.0**age
        era.per_second = math.log(2) * SECOND / self._half_life_ns / weight
        era.next_ns = now_ns + self._half_life_ns // _STEPS
        return era

    def _renewed(self, era: _Era, now_ns: int, scale: float) -> _Era:
        """A new era with what is left of the counts.

        The entries are new too: a thread that is still adding with an old weight does no harm.
        """
        entries = {
            name: [sure * scale, error * scale]
            for name, (sure, error) in era.entries.copy().items()
            if (sure + error) * scale >= _NEGLIGIBLE
        }
        return _Era(now_ns, entries, era.floor * scale)


def _shortened(key: str) -> str:
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{key[:64]}...{digest}"
