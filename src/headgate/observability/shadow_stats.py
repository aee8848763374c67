"""The statistics of one shadow rule, by hour and in all, and the merge of several processes.

A request is one *case*: the outcome of the rule, the decision of the enforcing rules, and the
outcome of the live rule. A request only adds to the count of its case in the current hour; the
figures are computed from the cases when they are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.observability.sketches import Distinct, hash_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


HOURS: Final = 48
DAY: Final = 24
"""The whole hours of a day; the current hour comes on top."""
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
"""The figures: *requests* that the rule matches, and those that it *would_deny*; of these,
*denied_anyway* were denied by the enforcing rules.

Compared with the live rule: *newly_denied* only this rule would deny; *newly_allowed* only the live
rule denies, be it that this one does not match; *denied_by_both*; *live_not_asked* are requests
that the live rule does not match."""
SERIES: Final = FIGURES[:2]
"""The figures with a value for each hour."""
COMPARED: Final = FIGURES[3:]

ALONE, UNMATCHED, LIVE_ALLOWED, LIVE_DENIED = range(4)
"""The outcome of the live rule: nothing to compare with, no match, allowed, denied."""
ENFORCED_ALLOWED: Final = 4
ALLOWED: Final = 8
"""A case is the sum of the outcome of the live rule, of `ENFORCED_ALLOWED` if the enforcing rules
allowed the request, and of `ALLOWED` if this rule would."""
PASSED_OVER: Final = 16
"""The case of a request that the live rule denied and this one does not match."""


def _figures_of_case(case: int) -> set[str]:
    if case == PASSED_OVER:
        return {"newly_allowed"}
    said, allowed = case % ENFORCED_ALLOWED, bool(case & ALLOWED)
    found = {"requests"}
    found |= {"live_not_asked"} if said == UNMATCHED else set()
    found |= {"newly_allowed"} if said == LIVE_DENIED and allowed else set()
    if not allowed:
        found |= {"would_deny"} if case & ENFORCED_ALLOWED else {"would_deny", "denied_anyway"}
        found |= {LIVE_ALLOWED: {"newly_denied"}, LIVE_DENIED: {"denied_by_both"}}.get(said, set())
    return found


_CASES: Final = tuple(
    tuple(case for case in range(PASSED_OVER + 1) if name in _figures_of_case(case))
    for name in FIGURES
)
"""The cases that count for each figure."""


class ShadowRule(NamedTuple):
    """A shadow rule in force. Its *version* changes with the rule or its live rule."""

    rule_id: str
    candidate_of: str | None
    version: str


class Hour(NamedTuple):
    """The figures of the hour *number*, and the keys that would be denied."""

    number: int
    figures: tuple[int, ...]
    keys: Distinct

    @classmethod
    def from_text(cls, text: str) -> Hour:
        """Read the text of `_hour_text`. Raises `ValueError`."""
        number, figures, keys = text.split(" ")
        return cls(int(number), tuple(map(int, figures.split(","))), Distinct.from_text(keys))


def _hour_text(number: int, figures: Iterable[int], keys: str) -> str:
    return f"{number} {','.join(map(str, figures))} {keys}"


class ShadowStats:
    """The statistics of *rule* since *since_ns*, under the policy of *revision*.

    *began_ns* is that moment on the monotonic clock; *is_anew*: the rule was there before, in
    another version or for a while.
    """

    def __init__(
        self,
        rule: ShadowRule,
        revision: int,
        since_ns: int,
        *,
        began_ns: int = 0,
        is_anew: bool = False,
    ) -> None:
        self.rule = rule
        self.live = rule.candidate_of
        self.revision = revision
        self._facts = {
            **rule._asdict(),
            "since": since_ns / SECOND,
            "began_ns": began_ns,
            "is_anew": is_anew,
        }
        self._before = [0] * len(FIGURES)
        self._keys = Distinct(KEYS)
        self._most_of_hour = KEYS_OF_AN_HOUR
        self._past: dict[int, str] = {}
        self._snapshot: dict[str, Any] | None = None
        self._begin(since_ns // HOUR_NS)

    def allot(self, keys: int, of_hour: int) -> None:
        """Keep at most *keys* hashes in all, and *of_hour* of each hour from now on."""
        self._snapshot = None
        self._keys.allot(keys)
        self._hour_keys.allot(of_hour)
        self._most_of_hour = of_hour

    def add(self, case: int, key: str | None, now_ns: int) -> None:
        """Count a request of this *case*; *key* is the one that would be denied."""
        if not self._begins_ns <= now_ns < self._ends_ns:
            self._go_to(now_ns // HOUR_NS)
        self._snapshot = None
        self._cells[case] += 1
        if key is not None:
            self.add_key(key)

    def add_key(self, key: str) -> None:
        """Add another key that would be denied to the last request."""
        number = hash_of(key)
        self._keys.add(number)
        self._hour_keys.add(number)

    def snapshot(self, now_ns: int) -> dict[str, Any]:
        """Return the statistics as data for JSON, not to be changed."""
        if not self._begins_ns <= now_ns < self._ends_ns:
            self._go_to(now_ns // HOUR_NS)
        if self._snapshot is None:
            counted = _figures_of(self._cells)
            present = _sum(self._carried, counted)
            self._snapshot = {
                **self._facts,
                "counts": _sum(self._before, counted),
                "keys": self._keys.to_text(),
                "hours": [*self._past.values(), self._hour_text(present)],
            }
        return self._snapshot

    def _begin(self, number: int) -> None:
        self._put_at(number)
        self._cells = [0] * (PASSED_OVER + 1)
        self._carried = [0] * len(FIGURES)  # from hours ahead of a clock that stepped back
        self._hour_keys = Distinct(self._most_of_hour)

    def _put_at(self, number: int) -> None:
        self._snapshot = None
        self._hour = number
        self._begins_ns, self._ends_ns = number * HOUR_NS, (number + 1) * HOUR_NS

    def _go_to(self, number: int) -> None:
        """Begin the hour *number*, or go back to it."""
        if number < self._hour:
            self._go_back(number)
            return
        counted = _figures_of(self._cells)
        figures = _sum(self._carried, counted)
        self._before = _sum(self._before, counted)
        if any(figures):
            self._past[self._hour] = self._hour_text(figures)
        self._past = {
            past: text if past >= number - DAY else text[: text.rindex(" ") + 1]  # no keys
            for past, text in self._past.items()
            if past > number - HOURS
        }
        self._begin(number)

    def _go_back(self, number: int) -> None:
        """Add the counts of hours ahead to this one: the clock stepped back."""
        for past in [past for past in self._past if past >= number]:
            hour = Hour.from_text(self._past.pop(past))
            self._carried = _sum(self._carried, hour.figures)
            self._hour_keys.merge(hour.keys)
        self._put_at(number)

    def _hour_text(self, figures: Iterable[int]) -> str:
        return _hour_text(self._hour, figures, self._hour_keys.to_text())


def _figures_of(cells: Sequence[int]) -> list[int]:
    return [sum([cells[case] for case in cases]) for cases in _CASES]


def _sum(some: Sequence[int], others: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(some, others, strict=True)]


Data = dict[str, Any]

LATE_NS: Final = 15 * SECOND
"""The most by which the snapshot of a running process is older than the newest one."""


def merged_candidates(snapshots: Iterable[Data], now: float) -> list[Data]:
    """Merge *snapshots* of `Candidates`, in any order, at *now* (seconds since the epoch).

    Of several versions of a rule, the last one in force counts. A rule that is only in snapshots
    much older than the others, of processes that are gone, is left out.
    """
    given = list(snapshots)
    newest_ns = max((one["seen_ns"] for one in given), default=0)
    in_force = {
        rule["rule_id"]
        for snapshot in given
        if snapshot["seen_ns"] >= newest_ns - LATE_NS
        for rule in snapshot["rules"]
    }
    hour = int(now * SECOND) // HOUR_NS
    by_rule = _by_rule(given)
    return [_merged(by_rule[name], hour) for name in sorted(in_force)]


def folded_candidates(snapshots: Iterable[Data]) -> Data:
    """Return one snapshot in place of *snapshots* of processes that are gone."""
    given = list(snapshots)
    return {
        "at": max((one["at"] for one in given), default=0.0),
        "seen_ns": max((one["seen_ns"] for one in given), default=0),
        "rules": [_folded(rules) for rules in _by_rule(given).values()],
    }


def _by_rule(snapshots: Iterable[Data]) -> dict[str, list[Data]]:
    """Return the data of each rule in its current version."""
    found: dict[str, list[tuple[int, Data]]] = {}
    for snapshot in snapshots:
        for rule in snapshot["rules"]:
            found.setdefault(rule["rule_id"], []).append((snapshot["seen_ns"], rule))
    return {name: _of_last_version(seen) for name, seen in found.items()}


def _of_last_version(seen: Sequence[tuple[int, Data]]) -> list[Data]:
    """Return the data of the version that came in force last; after a rollback, without data from
    before it."""
    _, newest = max(seen, key=lambda one: (one[1]["began_ns"], one[1]["version"]))
    same = [one for one in seen if one[1]["version"] == newest["version"]]
    anew_ns = max((rule["began_ns"] for _, rule in same if rule["is_anew"]), default=0)
    return [rule for seen_ns, rule in same if seen_ns >= anew_ns - LATE_NS]


def _merged(rules: Sequence[Data], hour: int) -> Data:
    hours = [Hour.from_text(text) for one in rules for text in one["hours"]]
    # Hours ahead were counted before the clock stepped back.
    hours = [one if one.number <= hour else one._replace(number=hour) for one in hours]
    day = [one for one in hours if one.number >= hour - DAY]
    name, candidate_of = rules[0]["rule_id"], rules[0]["candidate_of"]
    keys = (Distinct.from_text(one["keys"]) for one in rules)
    is_compared = candidate_of is not None
    return {
        "rule_id": name,
        "candidate_of": candidate_of,
        "since": min(one["since"] for one in rules),
        **_figures((one["counts"] for one in rules), keys, is_compared=is_compared),
        "last_day": _figures(
            (one.figures for one in day), (one.keys for one in day), is_compared=is_compared
        ),
        "hours": {
            "end": hour * 3600,
            "step": 3600,
            **{figure: _series(hours, place, hour) for place, figure in enumerate(SERIES)},
        },
    }


def _figures(
    counts: Iterable[Sequence[int]], keys: Iterable[Distinct], *, is_compared: bool
) -> Data:
    figures: Data = dict(zip(FIGURES, _sums(counts), strict=True))
    if not is_compared:
        figures |= dict.fromkeys(COMPARED)
    merged = Distinct().merge(*keys)
    return {**figures, "keys": merged.count, "keys_exact": merged.is_exact}


def _series(hours: Iterable[Hour], place: int, last: int) -> list[int]:
    """Return one number for each hour up to *last*, the current one."""
    series = [0] * HOURS
    for one in hours:
        behind = last - one.number
        if behind < HOURS:
            series[HOURS - 1 - behind] += one.figures[place]
    return series


def _folded(rules: Sequence[Data]) -> Data:
    by_number: dict[int, list[Hour]] = {}
    for one in rules:
        for hour in map(Hour.from_text, one["hours"]):
            by_number.setdefault(hour.number, []).append(hour)
    last = max(by_number)
    return {
        **rules[0],
        "since": min(one["since"] for one in rules),
        "began_ns": max(one["began_ns"] for one in rules),
        "is_anew": any(one["is_anew"] for one in rules),
        "counts": _sums(one["counts"] for one in rules),
        "keys": _merged_text((Distinct.from_text(one["keys"]) for one in rules), KEYS),
        "hours": [
            _hour_text(
                number,
                _sums(one.figures for one in some),
                _merged_text((one.keys for one in some), KEYS_OF_AN_HOUR),
            )
            for number, some in sorted(by_number.items())
            if number > last - HOURS
        ],
    }


def _merged_text(keys: Iterable[Distinct], most: int) -> str:
    return Distinct(most).merge(*keys).to_text()


def _sums(counts: Iterable[Sequence[int]]) -> list[int]:
    sums = [0] * len(FIGURES)
    for one in counts:
        for place, count in enumerate(one):
            sums[place] += count
    return sums
