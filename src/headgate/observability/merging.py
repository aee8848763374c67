"""What several processes have counted of rules in shadow, as one. Nothing here reads a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.observability.distinct import Sketch, joined
from headgate.observability.trials import (
    COMPARED,
    DAY,
    FIGURES,
    HOUR_NS,
    HOURS,
    KEYS,
    KEYS_OF_AN_HOUR,
    SERIES,
    Hour,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Data = dict[str, Any]

LATE_NS: Final = 15 * SECOND
"""By how much snapshots of processes that run may differ."""


def merged_candidates(snapshots: Iterable[Data], now: float) -> list[Data]:
    """What *snapshots* of `Candidates` say together at *now* (seconds since the epoch), by rule.

    In whatever order they are; each must be there once. Where they know different versions of a
    rule, that one counts which came in force last. Rules that only those know which are much older
    than the others, of processes that are gone, are gone too.
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
    """*snapshots* of processes that are gone as one, which says the same to `merged_candidates`."""
    given = list(snapshots)
    return {
        "at": max((one["at"] for one in given), default=0.0),
        "seen_ns": max((one["seen_ns"] for one in given), default=0),
        "rules": [_folded(rules) for rules in _by_rule(given).values()],
    }


def _by_rule(snapshots: Iterable[Data]) -> dict[str, list[Data]]:
    """What is told of each rule as it is now."""
    found: dict[str, list[tuple[int, Data]]] = {}
    for snapshot in snapshots:
        for rule in snapshot["rules"]:
            found.setdefault(rule["rule_id"], []).append((snapshot["seen_ns"], rule))
    return {name: _of_one_version(told) for name, told in found.items()}


def _of_one_version(told: Sequence[tuple[int, Data]]) -> list[Data]:
    """Those of the version that came in force last; if it was there before, as after a rollback,
    without those that had seen the last of it by then."""
    _, newest = max(told, key=lambda one: (one[1]["began_ns"], one[1]["version"]))
    same = [one for one in told if one[1]["version"] == newest["version"]]
    anew_ns = max((rule["began_ns"] for _, rule in same if rule["is_anew"]), default=0)
    return [rule for seen_ns, rule in same if seen_ns >= anew_ns - LATE_NS]


def _merged(rules: Sequence[Data], hour: int) -> Data:
    hours = [Hour.from_text(text) for one in rules for text in one["hours"]]
    # What is ahead of its time was counted before the clock was put back.
    hours = [one if one.number <= hour else one._replace(number=hour) for one in hours]
    day = [one for one in hours if one.number >= hour - DAY]
    name, candidate_of = rules[0]["rule_id"], rules[0]["candidate_of"]
    sketches = (Sketch.from_text(one["keys"]) for one in rules)
    is_compared = candidate_of is not None
    return {
        "rule_id": name,
        "candidate_of": candidate_of,
        "since": min(one["since"] for one in rules),
        **_figures((one["counts"] for one in rules), sketches, is_compared=is_compared),
        "last_day": _figures(
            (one.figures for one in day), (one.keys for one in day), is_compared=is_compared
        ),
        "hours": {
            "end": hour * 3600,
            "step": 3600,
            **{figure: _series(hours, place, hour) for place, figure in enumerate(SERIES)},
        },
    }


def _figures(counts: Iterable[Sequence[int]], keys: Iterable[Sketch], *, is_compared: bool) -> Data:
    told: Data = dict(zip(FIGURES, _sums(counts), strict=True))
    if not is_compared:
        told |= dict.fromkeys(COMPARED)
    sketch = joined(keys)
    return {**told, "keys": sketch.count, "keys_exact": sketch.is_exact}


def _series(hours: Iterable[Hour], place: int, last: int) -> list[int]:
    """One number for each hour, the oldest first; the *last* is the present one."""
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
    hours = [
        Hour(
            number,
            tuple(_sums(one.figures for one in some)),
            joined(one.keys for one in some).cut(KEYS_OF_AN_HOUR),
        )
        for number, some in sorted(by_number.items())
    ]
    return {
        **rules[0],
        "since": min(one["since"] for one in rules),
        "began_ns": max(one["began_ns"] for one in rules),
        "is_anew": any(one["is_anew"] for one in rules),
        "counts": _sums(one["counts"] for one in rules),
        "keys": joined(Sketch.from_text(one["keys"]) for one in rules).cut(KEYS).to_text(),
        "hours": [one.to_text() for one in hours if one.number > hours[-1].number - HOURS],
    }


def _sums(counts: Iterable[Sequence[int]]) -> list[int]:
    sums = [0] * len(FIGURES)
    for one in counts:
        for place, count in enumerate(one):
            sums[place] += count
    return sums
