"""Sketches of keys: `HeavyHitters` for the hottest, `Distinct` for the number of different ones.

`HeavyHitters` is a space-saving sketch with counts that decay by half in each half-life. At a
steady rate of r units per second a count settles at `r * half-life / ln 2`, which gives the rate.

It holds at most twice *capacity* keys. When there are as many, the lesser half is dropped, and the
largest count among them is the *floor*: no other key can have more. A key that comes (again) may
have had that much before: its count is what is certain, the floor is its error. Floor and errors
decay like counts.

What this promises, with T the rate of all keys together and m the capacity:

- a key's true rate is at least `per_second` and at most `per_second + error` (to about one percent,
  as counts decay in steps);
- no error exceeds T / m, so a key with more than T / m of its own is always known;
- sprayed keys raise errors, never rates.

The second holds as for the classic sketch: counts and errors add up to no more than all units,
since new keys between two drops bring in no more floors than dropped keys take out; and the larger
half has m counts of at least the floor. Instead of decaying all counts, later units weigh more:
`2 ** (age of the sketch / half-life)`. From time to time the weights start at 1 again.

`Distinct` keeps the hashes of keys below a *bound*, exactly while they are few. When they become
more than *most*, the bound falls to the largest of them, which is dropped. So of n keys a share of
`bound / 2**64` is kept, with an error of about `1 / sqrt(kept)`: 3 % for 1,024, 6 % for 256. Below
the lesser bound, two sketches hold what one sketch of all their keys would: merging sketches of
processes or hours counts no key twice.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from heapq import nlargest
from sys import maxsize
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


DEFAULT_HALF_LIFE_NS: Final = SECOND
LONGEST_KEY: Final = 200
"""Characters; a longer key is kept as its beginning and a digest, to bound the memory."""

_STEPS: Final = 64
"""The changes of the weight in a half-life."""
_LONGEST_ERA: Final = 64
"""Half-lives after which the weights start at 1 again."""
_NEGLIGIBLE: Final = 1e-6
"""A count, in current units, that is dropped when the weights start again."""

_Entry = list[float]
"""The certain count of a key, and its error, in weighted units."""


@dataclass(frozen=True, slots=True)
class Heavy:
    """A hot key with at least *per_second* units per second, and at most *error* more."""

    group: str
    key: str
    per_second: float
    error: float


class _Era:
    """The counts since the weights started at 1."""

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

    Threads share one without a lock: when two add at the same moment, one amount may be lost.
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
        """The number of keys that it holds."""
        era = self._era
        return 0 if era is None else len(era.entries)

    def add(self, group: str, key: str, amount: int, now_ns: int) -> float:
        """Add *amount* to a key; return its certain rate in units per second."""
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

    def top(self, count: int, now_ns: int) -> list[Heavy]:
        """Return the *count* hottest keys, the hottest first."""
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
        """Return the era with the weight of *now_ns*. A clock that steps back changes nothing."""
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
        """Return a new era with the decayed counts.

        The entries are new too: a thread that still adds with an old weight does no harm.
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


ALL: Final = 2**64
"""Above all hashes."""

_PERSON: Final = b"headgate.keys"


@lru_cache(maxsize=2048)
def hash_of(key: str) -> int:
    """Return the hash of *key*, the same in every process. Keys that are denied come again, and the
    cache takes a tenth of the time."""
    text = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, person=_PERSON).digest(), "little")


Packed = tuple[int, "array[int]"]
"""The bound of a `Distinct`, and its hashes."""


class Distinct:
    """The number of different keys, by the hashes below *bound*, at most *most* of them."""

    __slots__ = ("_most", "bound", "hashes")

    def __init__(
        self, most: int = maxsize, *, bound: int = ALL, hashes: Iterable[int] = ()
    ) -> None:
        self.bound = bound
        self.hashes = set(hashes)
        self.allot(most)

    @property
    def is_exact(self) -> bool:
        """True if no key was dropped."""
        return self.bound == ALL

    @property
    def count(self) -> int:
        """The number of different keys, estimated if it is not exact."""
        return round(len(self.hashes) * (1 if self.is_exact else ALL / self.bound))

    def add(self, number: int) -> None:
        """Add a hash."""
        if number >= self.bound or number in self.hashes:
            return
        self.hashes.add(number)
        if len(self.hashes) > self._most:
            self.bound = max(self.hashes)
            self.hashes.remove(self.bound)

    def merge(self, *others: Distinct) -> Self:
        """Add the hashes of *others*, in any order; no key counts twice."""
        self.bound = bound = min(self.bound, *(other.bound for other in others), ALL)
        merged = self.hashes.union(*(other.hashes for other in others))
        self.hashes = {number for number in merged if number < bound}
        self.allot(self._most)
        return self

    def allot(self, most: int) -> None:
        """Keep at most *most* hashes from now on."""
        self._most = most
        if len(self.hashes) > most:
            kept = sorted(self.hashes)
            self.bound, self.hashes = kept[most], set(kept[:most])

    @classmethod
    def unpacked(cls, packed: Packed) -> Self:
        """Return the sketch of `packed`."""
        bound, hashes = packed
        return cls(bound=bound, hashes=hashes)

    def packed(self) -> Packed:
        """Return its bound and its hashes, in little memory."""
        return self.bound, array("Q", self.hashes)
