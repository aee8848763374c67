"""Several workers' snapshots as one picture of the node. Pure; in whatever order they come.

What is counted is added up. What holds at the moment is told by those only who have been heard of
lately: a worker that has died, and has no successor yet, has counted what it has, but no key is
busy there any more.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.service.live.latency import quantile
from headgate.service.live.ring import OUTCOMES
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.service.live.snapshot import State

FORGOTTEN_NS: Final = 10 * SECOND
"""Who has not been heard of for so long is not taken to be there."""

MOST_SHOWN: Final = 20
MOST_RULES: Final = 1_000

Declared = tuple[str, str, str | None]
"""A rule of the policy: its id, its mode, what it is a candidate of."""


def fresh(states: Iterable[State], now_ns: int) -> list[State]:
    """Those that have been heard of lately."""
    return [one for one in states if now_ns - one["seen_ns"] <= FORGOTTEN_NS]


def merged_policy(states: Sequence[State]) -> dict[str, Any]:
    """The policy that is in force everywhere, and whatever any of them has to say against it."""
    all_of = [one["policy"] for one in states]
    revisions = [one["revision"] for one in all_of]
    troubles = [one["trouble"] for one in all_of if one["trouble"] is not None]
    known = [number for number in revisions if number is not None]
    return {
        "revision": min(known) if len(known) == len(revisions) and known else None,
        "rules": min((one["rules"] for one in all_of), default=0),
        "current": all(one["current"] for one in all_of),
        "stale": any(one["stale"] for one in all_of),
        "trouble": min(troubles, default=None),
        "problems": max((one["problems"] for one in all_of), default=0),
        "failures": max((one["failures"] for one in all_of), default=0),
    }


_WORSE: Final = ("ok", "failing", "open")


def merged_store(now: Sequence[State], ever: Sequence[State]) -> dict[str, Any]:
    """The store as those see it who see it worst; calls and errors of all that ever were."""
    stores = [one["store"] for one in now]
    errors: dict[str, int] = {}
    for state in ever:
        for reason, count in state["store"]["errors"].items():
            errors[reason] = errors.get(reason, 0) + count
    return {
        "url": min((one["url"] for one in stores), default=""),
        "state": max((one["state"] for one in stores), key=_WORSE.index, default="ok"),
        "trouble": sorted({told for one in stores for told in one["trouble"]}),
        "errors": dict(sorted(errors.items())),
        "calls": sum(state["store"]["calls"] for state in ever),
        "fail_mode": max((one["fail_mode"] for one in stores), default=0),
    }


def merged_requests(states: Iterable[State]) -> dict[str, int]:
    """How many were admitted and refused."""
    rows = [one["requests"] for one in states]
    return {"allowed": sum(row[1] for row in rows), "denied": sum(row[0] for row in rows)}


def merged_latency(states: Iterable[State]) -> dict[str, Any]:
    """How long decisions of the last minute took, in seconds."""
    counts = [sum(column) for column in zip(*(one["latency"] for one in states), strict=True)]
    told = {f"p{share}": quantile(counts, share / 100) for share in (50, 90, 99)}
    return {**told, "count": sum(counts)}


class Rates(NamedTuple):
    """What a rule said per second lately, by outcome and by source."""

    outcomes: dict[str, float]
    sources: dict[str, float]


def merged_rates(states: Iterable[State]) -> dict[str, Rates]:
    """What each rule said per second lately."""
    found: dict[str, tuple[dict[str, list[float]], dict[str, list[float]]]] = {}
    for state in states:
        for rule, outcome, source, rate in state["rates"]:
            outcomes, sources = found.setdefault(rule, ({}, {}))
            outcomes.setdefault(outcome, []).append(rate)
            sources.setdefault(source, []).append(rate)
    return {rule: Rates(*map(_rounded_sums, both)) for rule, both in found.items()}


def _rounded_sums(rates: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(fsum(some), 2) for name, some in sorted(rates.items())}


_NO_RATES: Final = Rates({}, {})


def merged_rules(
    states: Iterable[State], declared: Sequence[Declared], rates: dict[str, Rates]
) -> list[dict[str, Any]]:
    """The rules of the policy in its order, and behind them what else was counted.

    *rates* are what each said per second lately. Of more than `MOST_RULES`, those that most was
    asked of.
    """
    counted: dict[str, dict[str, Any]] = {}
    for state in states:
        for rule, outcome, source, count in state["cells"]:
            row = counted.setdefault(rule, {**dict.fromkeys(OUTCOMES, 0), "sources": {}})
            row[outcome] += count
            row["sources"][source] = row["sources"].get(source, 0) + count
    known = {rule for rule, _, _ in declared}
    others = [(rule, None, None) for rule in sorted(counted) if rule not in known]
    rows = [
        _rule_row(one, counted.get(one[0]), rates.get(one[0], _NO_RATES))
        for one in (*declared, *others)
    ]
    if len(rows) <= MOST_RULES:
        return rows
    busiest = sorted(rows, key=lambda row: (-sum(row[one] for one in OUTCOMES), row["rule_id"]))
    kept = {row["rule_id"] for row in busiest[:MOST_RULES]}
    return [row for row in rows if row["rule_id"] in kept]


def _rule_row(
    rule: tuple[str, str | None, str | None],
    counted: dict[str, Any] | None,
    rates: Rates,
) -> dict[str, Any]:
    rule_id, mode, candidate_of = rule
    found = counted or {**dict.fromkeys(OUTCOMES, 0), "sources": {}}
    return {
        "rule_id": rule_id,
        "mode": mode,
        "candidate_of": candidate_of,
        **{outcome: found[outcome] for outcome in OUTCOMES},
        "per_second": {outcome: rates.outcomes.get(outcome, 0.0) for outcome in OUTCOMES},
        "sources": dict(sorted(found["sources"].items())),
        "sources_per_second": rates.sources,
    }


def merged_keys(rows: Iterable[Sequence[Any]], *, most: int = MOST_SHOWN) -> list[dict[str, Any]]:
    """The busiest keys of all; the same key of several workers is one."""
    found: dict[tuple[str | None, str], tuple[list[float], list[float]]] = {}
    for rule, key, least, at_most in rows:
        leasts, at_mosts = found.setdefault((rule, key), ([], []))
        leasts.append(least)
        at_mosts.append(at_most)
    told: list[dict[str, Any]] = [
        {
            "rule_id": rule,
            "key": key,
            "per_second": round(fsum(leasts), 1),
            "at_most": round(fsum(at_mosts), 1),
        }
        for (rule, key), (leasts, at_mosts) in found.items()
    ]
    told.sort(key=lambda row: (-row["per_second"], row["rule_id"] or "", row["key"]))
    return told[:most]


def merged_bounds(rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """By how much limits may be overshot, as whoever was told last knows: it is the fleet's."""
    found: dict[str | None, tuple[int, int]] = {}
    for rule, holders, units in rows:
        known = found.get(rule, (0, 0))
        found[rule] = max(known[0], holders), max(known[1], units)
    told: list[dict[str, Any]] = [
        {"rule_id": rule, "holders": holders, "units": units}
        for rule, (holders, units) in found.items()
    ]
    told.sort(key=lambda row: (-row["units"], row["rule_id"] or ""))
    return told[:MOST_SHOWN]


def merged_queues(rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """What waits at each gate, of all workers; they wait as long as at the slowest."""
    found: dict[str, list[Sequence[float]]] = {}
    for gate, *numbers in rows:
        found.setdefault(gate, []).append(numbers)
    return [
        {
            "gate": gate,
            "waiting": sum(int(one[0]) for one in all_of),
            "in_flight": sum(int(one[1]) for one in all_of),
            "slots": sum(int(one[2]) for one in all_of),
            "wait_seconds": max(one[3] for one in all_of),
        }
        for gate, all_of in sorted(found.items())
    ]
