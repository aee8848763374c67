"""What is counted of one rule in shadow: by the hours of the wall clock, and in all."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.observability.distinct import ALL, Distinct, Sketch, hash_of, joined
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

HOURS: Final = 48
DAY: Final = 24
"""A day is so many whole hours, and what there is of the present one."""
HOUR_NS: Final = 3600 * SECOND
KEYS: Final = 1024
KEYS_OF_AN_HOUR: Final = 256

FIGURES: Final = (
    "requests",
    "would_deny",
    "denied_anyway",
    "newly_denied",
    "newly_allowed",
    "denied_by_both",
    "live_not_asked",
)
"""What is counted. *requests* that the rule was asked about, and those that it *would_deny*; of
these, *denied_anyway* were refused by the rules in force, so that nobody would have noticed.

Compared with the live rule: *newly_denied* it would have refused, and the live rule did not;
*newly_allowed* the live rule refused, and this one would not have, be it that it is not for them;
*denied_by_both* is what it says; *live_not_asked* are requests that the live rule is not for."""
REQUESTS, WOULD_DENY, ANYWAY, NEWLY_DENIED, NEWLY_ALLOWED, BOTH, NOT_ASKED = range(len(FIGURES))
SERIES: Final = FIGURES[:2]
"""Of these the hours are told one by one."""
COMPARED: Final = FIGURES[3:]

_NO_KEYS: Final = Sketch(ALL, array("Q"))


class Tried(NamedTuple):
    """A rule in shadow that is in force: *version* is otherwise when it, or its live rule, is."""

    rule_id: str
    candidate_of: str | None
    version: str


class Told(NamedTuple):
    """What a trial says: *data* for JSON, the keys, and those of the last day."""

    data: dict[str, Any]
    keys: Sketch
    day_keys: Sketch


class _Past(NamedTuple):
    """An hour that is over."""

    number: int
    counts: list[int]
    keys: Sketch


class Trial:
    """What is counted of *tried* since *since_ns*, when a policy of *revision* was in force."""

    def __init__(self, tried: Tried, revision: int, since_ns: int) -> None:
        self.tried = tried
        self.revision = revision
        self._since_ns = since_ns
        self._counts = [0] * len(FIGURES)
        self._keys = Distinct(KEYS)
        self._hour = since_ns // HOUR_NS
        self._hour_counts = [0] * len(FIGURES)
        self._hour_keys = Distinct(KEYS_OF_AN_HOUR)
        self._past: list[_Past] = []
        self._past_keys = _NO_KEYS  # of the day
        self._told: Told | None = None

    def add(self, places: Sequence[int], key: str | None, now_ns: int) -> None:
        """Add one to the figures at *places*; *key* is one that something would be refused to."""
        self._turn(now_ns)
        counts, of_hour = self._counts, self._hour_counts
        for place in places:
            counts[place] += 1
            of_hour[place] += 1
        if key is not None:
            number = hash_of(key)
            self._keys.add(number)
            self._hour_keys.add(number)
        self._told = None

    def told(self, now_ns: int) -> Told:
        """What was counted so far."""
        self._turn(now_ns)
        if self._told is None:
            self._told = self._tell()
        return self._told

    def _turn(self, now_ns: int) -> None:
        """Begin a new hour, if it is time for that. A clock that goes back begins none."""
        number = now_ns // HOUR_NS
        if number <= self._hour:
            return
        self._past.append(_Past(self._hour, self._hour_counts, self._hour_keys.sketch()))
        self._past = [one for one in self._past if one.number > number - HOURS]
        of_day = [one.keys for one in self._past if one.number >= number - DAY]
        self._past_keys = joined(of_day).cut(KEYS)
        self._hour = number
        self._hour_counts = [0] * len(FIGURES)
        self._hour_keys = Distinct(KEYS_OF_AN_HOUR)
        self._told = None

    def _tell(self) -> Told:
        present, of_hour = self._hour, self._hour_keys.sketch()
        hours = [*self._past, _Past(present, self._hour_counts, of_hour)]
        day = [one.counts for one in hours if one.number >= present - DAY]
        series = {name: [0] * HOURS for name in SERIES}
        for one in hours:
            for place, name in enumerate(SERIES):
                series[name][HOURS - 1 - (present - one.number)] = one.counts[place]
        data = {
            **self.tried._asdict(),
            "since": self._since_ns / SECOND,
            "hour": present,
            "counts": list(self._counts),
            "day": [sum(counts) for counts in zip(*day, strict=True)],
            "hours": series,
        }
        return Told(data, self._keys.sketch(), joined((self._past_keys, of_hour)))
