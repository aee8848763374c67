"""What several processes have counted of rules in shadow, as one. Nothing here reads a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.observability.distinct import Sketch, joined
from headgate.observability.trials import COMPARED, DAY, FIGURES, HOUR_NS, HOURS, SERIES
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Data = dict[str, Any]

LATE: Final = 15.0
"""Seconds by which snapshots of processes that run may differ."""


def merged_candidates(snapshots: Iterable[Data], now: float) -> list[Data]:
    """What *snapshots* of `Candidates` say together at *now* (seconds since the epoch), by rule.

    In whatever order they are; each must be there once. Where they know different versions of a
    rule, that one counts which came in force last. Rules that only those know which are much older
    than the others, of processes that are gone, are gone too.
    """
    given = list(snapshots)
    newest = max((one["at"] for one in given), default=0.0)
    by_rule: dict[str, list[Data]] = {}
    in_force: set[str] = set()
    for snapshot in given:
        for rule in snapshot["rules"]:
            by_rule.setdefault(rule["rule_id"], []).append(rule)
            if snapshot["at"] >= newest - LATE:
                in_force.add(rule["rule_id"])
    hour = int(now * SECOND) // HOUR_NS
    return [_merged(by_rule[name], hour) for name in sorted(in_force)]


def _merged(rules: Sequence[Data], hour: int) -> Data:
    newest = max(rules, key=lambda one: (one["since"], one["version"]))
    same = [one for one in rules if one["version"] == newest["version"]]
    hour = max(hour, *(one["hour"] for one in same))
    recent = [one for one in same if one["hour"] >= hour - DAY]
    is_compared = newest["candidate_of"] is not None
    return {
        "rule_id": newest["rule_id"],
        "candidate_of": newest["candidate_of"],
        "since": min(one["since"] for one in same),
        **_figures(same, "counts", "keys", is_compared=is_compared),
        "last_day": _figures(recent, "day", "day_keys", is_compared=is_compared),
        "hours": {
            "end": hour * 3600,
            "step": 3600,
            **{name: _series(same, name, hour) for name in SERIES},
        },
    }


def _figures(rules: Sequence[Data], counts: str, keys: str, *, is_compared: bool) -> Data:
    sums = [sum(one[counts][place] for one in rules) for place in range(len(FIGURES))]
    told: Data = dict(zip(FIGURES, sums, strict=True))
    if not is_compared:
        told |= dict.fromkeys(COMPARED)
    sketch = joined(Sketch.from_text(one[keys]) for one in rules)
    return {**told, "keys": sketch.count, "keys_exact": sketch.is_exact}


def _series(rules: Iterable[Data], name: str, hour: int) -> list[int]:
    """One number for each hour, the oldest first; the last is the present one."""
    series = [0] * HOURS
    for one in rules:
        behind = hour - one["hour"]
        for place, count in enumerate(one["hours"][name]):
            if place >= behind:
                series[place - behind] += count
    return series
