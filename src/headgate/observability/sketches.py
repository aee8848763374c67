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
from array import array
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from heapq import heappop, heappush, heappushpop, nlargest
from sys import byteorder
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


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


# How many different keys there were: exactly while they are few, then to a few percent.
#
# Every key has a hash, a number below 2**64 that might as well be random. A sketch keeps all hashes
# below a *bound*. At first there is none, and they are simply all of them. When they become more
# than *most*, the bound is lowered to the largest of them, which is left out. So of n keys those
# are kept that fall into a share `bound / 2**64` of all numbers, and n is about what is kept over
# that share. The error is about `1 / sqrt(kept)`: 3 % for 1,024, 6 % for 256.
#
# What two sketches have both below the lesser bound is what one sketch of all their keys would have
# there, so sketches of several processes or hours are joined without counting a key twice.


ALL: Final = 2**64
"""What hashes are below."""

_PERSON: Final = b"headgate.keys"


@lru_cache(maxsize=2048)
def hash_of(key: str) -> int:
    """The number that stands for *key*, the same in every process. Those of late are remembered:
    who is refused comes again, and to look it up takes a tenth of the time."""
    text = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, person=_PERSON).digest(), "little")


class Distinct:
    """Takes hashes in, and keeps *most* of them at the most."""

    __slots__ = ("_bound", "_heap", "_kept", "_most", "_text")

    def __init__(self, most: int) -> None:
        self._most = most
        self._bound = ALL
        self._kept: set[int] = set()
        self._heap: list[int] = []  # negated: the largest is first
        self._text: str | None = None

    def add(self, number: int) -> None:
        """Take in a hash."""
        if number >= self._bound or number in self._kept:
            return
        self._text = None
        self._kept.add(number)
        if len(self._kept) <= self._most:
            heappush(self._heap, -number)
            return
        self._bound = -heappushpop(self._heap, -number)
        self._kept.remove(self._bound)

    def take_in(self, sketch: Sketch) -> None:
        """Take in all that *sketch* knows."""
        for number in sketch.hashes:
            self.add(number)
        if sketch.bound < self._bound:
            self._bound = sketch.bound
            self._kept = {number for number in self._kept if number < self._bound}
            self._heap = sorted(-number for number in self._kept)
            self._text = None

    def allot(self, most: int) -> None:
        """Keep *most* from now on. What was left out before is not known for that."""
        self._most = most
        while len(self._kept) > most:
            self._bound = -heappop(self._heap)
            self._kept.remove(self._bound)
            self._text = None

    def sketch(self) -> Sketch:
        """What it knows."""
        return Sketch(self._bound, array("Q", sorted(self._kept)))

    def to_text(self) -> str:
        """As `Sketch.to_text`, quickly: nothing is put in order, and nothing done if it knows
        nothing new."""
        if self._text is None:
            self._text = Sketch(self._bound, array("Q", self._kept)).to_text()
        return self._text


@dataclass(frozen=True, slots=True)
class Sketch:
    """The hashes below *bound*, eight bytes each; in order, but for what comes from a text."""

    bound: int
    hashes: array[int]

    @property
    def is_exact(self) -> bool:
        """Whether all keys are known."""
        return self.bound == ALL

    @property
    def count(self) -> int:
        """How many keys there were, as far as is known."""
        kept = len(self.hashes)
        return kept if self.is_exact else round(kept * ALL / self.bound)

    def cut(self, most: int) -> Self:
        """The same with *most* hashes at the most."""
        if len(self.hashes) <= most:
            return self
        least = sorted(self.hashes)
        return type(self)(least[most], array("Q", least[:most]))

    def to_text(self) -> str:
        """The same as a text, for JSON."""
        plain = array("Q", self.hashes)
        if byteorder == "big":  # pragma: no cover - no machine of ours is
            plain.byteswap()
        text = b64encode(plain.tobytes()).decode("ascii")
        return text if self.is_exact else f"{self.bound:x}:{text}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `to_text` made a text of. Raises `ValueError`."""
        bound, _, rest = text.rpartition(":")
        hashes = array("Q")
        hashes.frombytes(b64decode(rest, validate=True))
        if byteorder == "big":  # pragma: no cover - no machine of ours is
            hashes.byteswap()
        return cls(int(bound, 16) if bound else ALL, hashes)


def joined(sketches: Iterable[Sketch]) -> Sketch:
    """One sketch of all keys of *sketches*, in whatever order, none counted twice."""
    given = list(sketches)
    bound = min((one.bound for one in given), default=ALL)
    found = {number for one in given for number in one.hashes if number < bound}
    return Sketch(bound, array("Q", sorted(found)))
