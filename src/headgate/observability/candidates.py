"""Statistics of shadow rules, to decide whether to enforce them.

For each shadow rule: the number of requests, of those that it would deny, and of the different keys
of those, by hour and in all. A *candidate*, a shadow rule beside a live one, is compared with the
live rule on the same requests.

The statistics of a rule start when it comes in force; a change of the rule, or of its live rule,
starts them again. They are those of this process; `merged_candidates` merges several.

There are at most `MOST` rules, each with 1,024 hashes of keys in all and 256 for each of 25 hours;
fewer if there are more than 24 rules, or 5 for the hours. That takes 0.25 MB of memory if so many
keys are denied every hour, and a few kilobytes if few are.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headgate.observability.sketches import Distinct, hash_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from headgate.observability.sketches import Packed

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

LiveOutcome = Literal["none", "unmatched", "allowed", "denied"]
"""The outcome of the live rule; `none` if there is nothing to compare with."""


@cache
def _figures_of(live: LiveOutcome, *, allowed: bool, is_request_allowed: bool) -> tuple[int, ...]:
    """Return the indices of the figures that count a request, which this rule would allow or not,
    and which the enforcing rules allowed or not."""
    found = ["requests"]
    if live == "unmatched":
        found.append("live_not_asked")
    if allowed:
        found += ["newly_allowed"] if live == "denied" else []
    else:
        found += ["would_deny"] if is_request_allowed else ["would_deny", "denied_anyway"]
        found += ["newly_denied"] if live == "allowed" else []
        found += ["denied_by_both"] if live == "denied" else []
    return tuple(map(FIGURES.index, found))


_UNMATCHED_BY_CANDIDATE: Final = (FIGURES.index("newly_allowed"),)
"""The figure of a request that the live rule denied and its candidate does not match."""


class ShadowRule(NamedTuple):
    """A shadow rule in force. Its *version* changes with the rule or its live rule."""

    rule_id: str
    candidate_of: str | None
    version: str


class _Hour(NamedTuple):
    """The figures of the hour *number*, and the keys that would be denied."""

    number: int
    figures: Sequence[int]
    keys: Packed


_NO_KEYS: Final = Distinct().packed()


class _RuleStats:
    """The statistics of *rule* since *since_ns*, under the policy of *revision*.

    *began_ns* is that moment on the monotonic clock; *is_restart*: the rule was there before, in
    another version or for a while.
    """

    def __init__(
        self, rule: ShadowRule, revision: int, since_ns: int, began_ns: int, *, is_restart: bool
    ) -> None:
        self.rule = rule
        self.revision = revision
        self._facts = {
            **rule._asdict(),
            "since": since_ns / SECOND,
            "began_ns": began_ns,
            "is_restart": is_restart,
        }
        self._counts = [0] * len(FIGURES)
        self._keys = Distinct(KEYS)
        self._most_of_hour = KEYS_OF_AN_HOUR
        self._past: dict[int, _Hour] = {}
        self._begin(since_ns // HOUR_NS)

    def allot(self, keys: int, of_hour: int) -> None:
        """Keep at most *keys* hashes in all, and *of_hour* of each hour from now on."""
        self._keys.allot(keys)
        self._hour_keys.allot(of_hour)
        self._most_of_hour = of_hour

    def add(self, figures: Iterable[int], keys: Iterable[str], now_ns: int) -> None:
        """Count a request for *figures*; *keys* are those that would be denied."""
        self._go_to(now_ns // HOUR_NS)
        for index in figures:
            self._counts[index] += 1
            self._hour_counts[index] += 1
        for number in map(hash_of, keys):
            self._keys.add(number)
            self._hour_keys.add(number)

    def snapshot(self, now_ns: int) -> Data:
        """Return the statistics."""
        self._go_to(now_ns // HOUR_NS)
        return {
            **self._facts,
            "counts": self._counts.copy(),
            "keys": self._keys.packed(),
            "hours": [*self._past.values(), self._hour],
        }

    @property
    def _hour(self) -> _Hour:
        """The current hour."""
        return _Hour(self._number, tuple(self._hour_counts), self._hour_keys.packed())

    def _begin(self, number: int) -> None:
        self._number = number
        self._hour_counts = [0] * len(FIGURES)
        self._hour_keys = Distinct(self._most_of_hour)

    def _go_to(self, number: int) -> None:
        """Begin the hour *number*, unless it is the current one."""
        if number == self._number:
            return
        if number < self._number:
            self._go_back(number)
            return
        if any(self._hour_counts):
            self._past[self._number] = self._hour
        self._past = {
            past: hour if past >= number - DAY else hour._replace(keys=_NO_KEYS)
            for past, hour in self._past.items()
            if past > number - HOURS
        }
        self._begin(number)

    def _go_back(self, number: int) -> None:
        """Add the counts of hours ahead to this one: the clock stepped back."""
        for past in [past for past in self._past if past >= number]:
            hour = self._past.pop(past)
            self._hour_counts[:] = _sums((self._hour_counts, hour.figures))
            self._hour_keys.merge(Distinct.unpacked(hour.keys))
        self._number = number


Data = dict[str, Any]

MOST: Final = 100
"""The most shadow rules with statistics: the candidates of a policy, then its first rules."""
MOST_KEYS: Final = 24 * KEYS
MOST_KEYS_OF_DAY: Final = 32 * KEYS
"""The most hashes of keys of all rules together, in all and for the last day."""

_NOT_DECIDED: Final = frozenset({"fail_open", "fail_closed", "local", "fallback", "rule"})
"""Sources without a counter: decisions without the store, or by a limit of 0 in the call, are not
compared."""

RuleOutcome = tuple[str, str, bool, bool, str]
"""The outcome of one rule: rule id, key, True if it is a shadow rule, True if it allows, source."""


class Candidates:
    """The statistics of the shadow rules of this process. Thread-safe.

    *clock* is the wall clock in nanoseconds, *monotonic* a clock that all processes of the machine
    share and that never steps back.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.time_ns,
        *,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.beside: dict[str, str] = {}
        """The candidate of each live rule that has one, whose denials are reported here."""
        self._clock = clock
        self._monotonic = monotonic
        self._stats: dict[str, _RuleStats] = {}
        self._former: dict[str, None] = {}  # rules that were dropped, the last ones
        self._lock = threading.Lock()

    def put_in_force(
        self, rules: Sequence[ShadowRule], *, revision: int = 0, gone: Collection[str] = ()
    ) -> None:
        """Set the shadow rules of a policy of *revision*; those *gone* were in the one before."""
        first = sorted(rules, key=lambda one: one.candidate_of is None)[:MOST]
        some = {one.rule_id: one for one in rules if one in first}
        with self._lock:
            known = self._stats
            changed = [name for name in some if name in known and known[name].rule != some[name]]
            for name in (*gone, *changed):
                self._drop(name)
            for name, one in some.items():
                if name not in known:
                    known[name] = self._new(one, revision)
                else:  # maybe of another policy of this process
                    known[name].revision = min(known[name].revision, revision)
                if one.candidate_of is not None:
                    self.beside[one.candidate_of] = name
            others = [name for name in self._stats if name not in some]
            for name in others[: max(0, len(self._stats) - MOST)]:  # of old policies
                self._drop(name)
            self._allot()

    def record(
        self,
        outcomes: Sequence[RuleOutcome],
        *,
        is_allowed: bool,
        revision: int | None = None,
        without: Collection[str] = (),
    ) -> None:
        """Record the outcomes of the rules for one request, which is allowed or denied.

        A rule with several outcomes, for several descriptors of a call, denies if one of them does.
        Rules that have changed since the policy of *revision* do not count. *without* has the rules
        that match the request and were not checked, because it repeats one that was charged.
        """
        by_rule = {one[0]: one for one in outcomes}
        by_rule |= {one[0]: one for one in outcomes if not one[3]}
        with self._lock:
            now_ns = self._clock()
            for name, _, is_shadow, allowed, source in by_rule.values():
                if source in _NOT_DECIDED:
                    continue
                stats = self._stats_of(name) if is_shadow else None
                if stats is not None and (revision is None or revision >= stats.revision):
                    live = _live_outcome(stats.rule.candidate_of, by_rule, without)
                    figures = _figures_of(live, allowed=allowed, is_request_allowed=is_allowed)
                    keys = () if allowed else _denied_keys(name, outcomes)
                    stats.add(figures, keys, now_ns)
                if not allowed and name in self.beside:
                    self._record_denial(name, by_rule, without, revision, now_ns)

    def snapshot(self) -> Data:
        """Return all statistics for `merged_candidates`, at most 1 MB."""
        with self._lock:
            now_ns = self._clock()
            rules = [stats.snapshot(now_ns) for stats in self._stats.values()]
        return {"at": now_ns / SECOND, "seen_ns": self._monotonic(), "rules": rules}

    def after_fork(self) -> None:
        """Start all statistics again in a forked process: the counts are those of its parent."""
        self._lock = threading.Lock()
        known = self._stats.copy()
        self._stats = {name: self._new(one.rule, one.revision) for name, one in known.items()}
        self._allot()

    def _new(self, rule: ShadowRule, revision: int) -> _RuleStats:
        is_restart = rule.rule_id in self._former
        began_ns = self._monotonic()
        return _RuleStats(rule, revision, self._clock(), began_ns, is_restart=is_restart)

    def _drop(self, name: str) -> None:
        stats = self._stats.pop(name, None)
        if stats is None:
            return
        self._former[name] = None
        if len(self._former) > 10 * MOST:
            del self._former[next(iter(self._former))]
        live = stats.rule.candidate_of
        if live is not None and self.beside.get(live) == name:
            del self.beside[live]

    def _allot(self) -> None:
        """Divide the hashes among the rules."""
        count = len(self._stats)
        if count:
            keys = min(KEYS, MOST_KEYS // count)
            of_hour = min(KEYS_OF_AN_HOUR, MOST_KEYS_OF_DAY // (count * (DAY + 1)))
            for stats in self._stats.values():
                stats.allot(keys, of_hour)

    def _stats_of(self, name: str) -> _RuleStats | None:
        """Return the statistics of a shadow rule; None if there are too many."""
        stats = self._stats.get(name)
        if stats is None and len(self._stats) < MOST:
            # It is not of a known policy: its statistics start with its first request.
            stats = self._stats[name] = self._new(ShadowRule(name, None, ""), 0)
            self._allot()
        return stats

    def _record_denial(
        self,
        live: str,
        by_rule: Mapping[str, RuleOutcome],
        without: Collection[str],
        revision: int | None,
        now_ns: int,
    ) -> None:
        """Record a denial by a live rule; a candidate that does not match would allow it."""
        name = self.beside[live]
        stats = self._stats.get(name)
        if stats is None or name in by_rule or name in without:
            return
        if revision is None or revision >= stats.revision:
            stats.add(_UNMATCHED_BY_CANDIDATE, (), now_ns)


def _denied_keys(name: str, outcomes: Sequence[RuleOutcome]) -> Sequence[str]:
    return [one[1] for one in outcomes if one[0] == name and not one[3]]


def _live_outcome(
    live: str | None, by_rule: Mapping[str, RuleOutcome], without: Collection[str]
) -> LiveOutcome:
    """Return the outcome of the rule *live*."""
    found = None if live is None else by_rule.get(live)
    if found is None:
        return "none" if live is None else "allowed" if live in without else "unmatched"
    if found[4] in _NOT_DECIDED:
        return "none"
    return "allowed" if found[3] else "denied"


LATE_NS: Final = 15 * SECOND
"""The most by which the snapshot of a running process is older than the newest one."""


def merged_candidates(snapshots: Iterable[Data], now: float) -> list[Data]:
    """Merge *snapshots* of `Candidates`, in any order, at *now* (seconds since the epoch).

    Of several versions of a rule, the last one in force counts. A rule that is only in snapshots
    much older than the others, of processes that have ended, is left out.
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
    """Return one snapshot in place of *snapshots* of processes that have ended."""
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
    restart_ns = max((rule["began_ns"] for _, rule in same if rule["is_restart"]), default=0)
    return [rule for seen_ns, rule in same if seen_ns >= restart_ns - LATE_NS]


def _merged(rules: Sequence[Data], hour: int) -> Data:
    hours: list[_Hour] = [hour for one in rules for hour in one["hours"]]
    # Hours ahead were counted before the clock stepped back.
    hours = [one if one.number <= hour else one._replace(number=hour) for one in hours]
    day = [one for one in hours if one.number >= hour - DAY]
    name, candidate_of = rules[0]["rule_id"], rules[0]["candidate_of"]
    keys = (one["keys"] for one in rules)
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


def _figures(counts: Iterable[Sequence[int]], keys: Iterable[Packed], *, is_compared: bool) -> Data:
    figures: Data = dict(zip(FIGURES, _sums(counts), strict=True))
    if not is_compared:
        figures |= dict.fromkeys(COMPARED)
    merged = Distinct().merge(*map(Distinct.unpacked, keys))
    return {**figures, "keys": merged.count, "keys_exact": merged.is_exact}


def _series(hours: Iterable[_Hour], place: int, last: int) -> list[int]:
    """Return one number for each hour up to *last*, the current one."""
    series = [0] * HOURS
    for one in hours:
        behind = last - one.number
        if behind < HOURS:
            series[HOURS - 1 - behind] += one.figures[place]
    return series


def _folded(rules: Sequence[Data]) -> Data:
    by_number: dict[int, list[_Hour]] = {}
    for one in rules:
        for hour in one["hours"]:
            by_number.setdefault(hour.number, []).append(hour)
    last = max(by_number)
    return {
        **rules[0],
        "since": min(one["since"] for one in rules),
        "began_ns": max(one["began_ns"] for one in rules),
        "is_restart": any(one["is_restart"] for one in rules),
        "counts": _sums(one["counts"] for one in rules),
        "keys": _merged_keys(KEYS, (one["keys"] for one in rules)),
        "hours": [
            _Hour(
                number,
                _sums(one.figures for one in some),
                _merged_keys(KEYS_OF_AN_HOUR, (one.keys for one in some)),
            )
            for number, some in sorted(by_number.items())
            if number > last - HOURS
        ],
    }


def _merged_keys(most: int, keys: Iterable[Packed]) -> Packed:
    return Distinct(most).merge(*map(Distinct.unpacked, keys)).packed()


def _sums(counts: Iterable[Sequence[int]]) -> list[int]:
    sums = [0] * len(FIGURES)
    for one in counts:
        for place, count in enumerate(one):
            sums[place] += count
    return sums


CANDIDATES: Final = Candidates()
"""The statistics of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CANDIDATES.after_fork)
