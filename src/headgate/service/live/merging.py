"""Merges the snapshots of several workers into one view of the node. Pure, in any order.

Counters are added up. Current values come from live workers only: a dead worker without a successor
has counted what it has, but has no busy keys.
"""

from __future__ import annotations

from math import fsum
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate import __version__
from headgate.service.live.recorder import MINUTE, MINUTES, OUTCOMES, SECONDS, WHOLE, quantile
from headgate.service.live.snapshot import json_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence

    from headgate.service.live.recorder import Line, Points
    from headgate.service.live.snapshot import Series, State


STALE_NS: Final = 10 * SECOND
"""Age from which a worker counts as dead."""

MAX_SHOWN: Final = 20
MAX_RULES: Final = 1_000

Declared = tuple[str, str, str | None]
"""A rule of the policy: its id, its mode, the rule it is a candidate of."""


def fresh(states: Iterable[State], now_ns: int) -> list[State]:
    """The states of live workers."""
    return [one for one in states if now_ns - one["seen_ns"] <= STALE_NS]


def merged_policy(states: Sequence[State]) -> dict[str, Any]:
    """The policy that is in force on all workers, and the worst problem of any."""
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
    """The worst state of the store on any live worker; calls and errors of all."""
    stores = [one["store"] for one in now]
    errors: dict[str, int] = {}
    for state in ever:
        for reason, count in state["store"]["errors"].items():
            errors[reason] = errors.get(reason, 0) + count
    return {
        "url": min((one["url"] for one in stores), default=""),
        "state": max((one["state"] for one in stores), key=_WORSE.index, default="ok"),
        "trouble": sorted({text for one in stores for text in one["trouble"]}),
        "errors": dict(sorted(errors.items())),
        "calls": sum(state["store"]["calls"] for state in ever),
        "fail_mode": max((one["fail_mode"] for one in stores), default=0),
    }


def merged_requests(states: Iterable[State]) -> dict[str, int]:
    """The numbers of allowed and denied requests."""
    rows = [one["requests"] for one in states]
    return {"allowed": sum(row[1] for row in rows), "denied": sum(row[0] for row in rows)}


def merged_latency(states: Iterable[State]) -> dict[str, Any]:
    """The latency of decisions of the last minute, in seconds."""
    counts = [sum(column) for column in zip(*(one["latency"] for one in states), strict=True)]
    quantiles = {f"p{share}": quantile(counts, share / 100) for share in (50, 90, 99)}
    return {**quantiles, "count": sum(counts)}


class Rates(NamedTuple):
    """Recent decisions of a rule per second, by outcome and by source."""

    outcomes: dict[str, float]
    sources: dict[str, float]


def merged_rates(states: Iterable[State]) -> dict[str, Rates]:
    """Recent decisions per second by rule."""
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
    """The rules of the policy in order, followed by other rules that were counted.

    *rates* are the recent decisions per second. Of more than `MAX_RULES`, the busiest.
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
    if len(rows) <= MAX_RULES:
        return rows
    busiest = sorted(rows, key=lambda row: (-sum(row[one] for one in OUTCOMES), row["rule_id"]))
    kept = {row["rule_id"] for row in busiest[:MAX_RULES]}
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


def merged_keys(rows: Iterable[Sequence[Any]], *, most: int = MAX_SHOWN) -> list[dict[str, Any]]:
    """The busiest keys of all workers; equal keys are added up."""
    found: dict[tuple[str | None, str], tuple[list[float], list[float]]] = {}
    for rule, key, least, at_most in rows:
        leasts, at_mosts = found.setdefault((rule, key), ([], []))
        leasts.append(least)
        at_mosts.append(at_most)
    merged: list[dict[str, Any]] = [
        {
            "rule_id": rule,
            "key": key,
            "per_second": round(fsum(leasts), 1),
            "at_most": round(fsum(at_mosts), 1),
        }
        for (rule, key), (leasts, at_mosts) in found.items()
    ]
    merged.sort(key=lambda row: (-row["per_second"], row["rule_id"] or "", row["key"]))
    return merged[:most]


def merged_bounds(rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """The overshoot of limits, which is a figure of the fleet: the largest that any worker
    knows."""
    found: dict[str | None, tuple[int, int]] = {}
    for rule, holders, units in rows:
        known = found.get(rule, (0, 0))
        found[rule] = max(known[0], holders), max(known[1], units)
    merged: list[dict[str, Any]] = [
        {"rule_id": rule, "holders": holders, "units": units}
        for rule, (holders, units) in found.items()
    ]
    merged.sort(key=lambda row: (-row["units"], row["rule_id"] or ""))
    return merged[:MAX_SHOWN]


def merged_queues(rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """The queues at each gate, summed over workers; the wait is that of the slowest."""
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


# Merging the points of several workers to one series. Pure.


MAX_SERIES_RULES: Final = 100
"""Rules in a series, the busiest."""

MAX_LAG: Final = 2
"""Points that the last one waits for a worker that is late."""

Lines = dict["Line", list[int]]


def common_end(ends: Iterable[int | None], *, otherwise: int) -> int:
    """The last point that all workers have, except those late by more than `MAX_LAG`."""
    known = [end for end in ends if end is not None]
    if not known:
        return otherwise
    return max(min(known), max(known) - MAX_LAG)


def merged_lines(all_of: Iterable[Points], *, end: int, length: int) -> Lines:
    """The sums of all lines: *length* points each, the last with number *end*."""
    found: Lines = {}
    for points in all_of:
        if points.end is None:
            continue
        late = points.end - end
        for line, values in points.lines.items():
            moved = _moved(values, late, length)
            known = found.get(line)
            found[line] = moved if known is None else list(map(add, known, moved))
    return found


def _moved(values: array[int], late: int, length: int) -> list[int]:
    """Move *values* by *late* points towards the end, or back if negative."""
    if late >= 0:
        until = len(values) - late
        kept = values[max(0, until - length) : max(0, until)].tolist()
        return [0] * (length - len(kept)) + kept
    kept = values[-late:].tolist()[-length:]
    after = min(-late, length)
    return [0] * (length - len(kept) - after) + kept + [0] * after


def series(lines: Lines, *, end: int, step: int, length: int) -> dict[str, Any]:
    """The series of all requests, and by rule and outcome for the busiest rules."""
    totals: dict[str, int] = {}
    for (rule, _), values in lines.items():
        if rule != WHOLE:
            totals[rule] = totals.get(rule, 0) + sum(values)
    busiest = sorted(totals, key=lambda rule: (-totals[rule], rule))[:MAX_SERIES_RULES]
    nothing = [0] * length
    drawn = {
        rule: {outcome: lines.get((rule, outcome), nothing) for outcome in OUTCOMES}
        for rule in busiest
        if totals[rule]
    }
    whole = {
        "allowed": lines.get((WHOLE, "allowed"), nothing),
        "denied": lines.get((WHOLE, "denied"), nothing),
    }
    return {"end": end * step, "step": step, "requests": whole, "rules": drawn}


# All workers of a node as one view: the reply of `/admin/v1/live`. Pure.


def merged_view(
    workers: Sequence[tuple[State, Series]],
    rules: Sequence[Declared],
    *,
    now_ns: int,
    at_ns: int,
) -> dict[str, Any]:
    """The view of all workers in *workers*; *rules* are those of the policy."""
    ever = [state for state, _ in workers]
    now = fresh(ever, now_ns)
    lines, last = _lines(workers, now_ns, at_ns)
    by_second, by_minute = lines
    second, minute = last
    return {
        "at": at_ns / SECOND,
        "began": min(one["began"] for one in ever),
        "version": __version__,
        "workers": len(now),
        "policy": merged_policy(now),
        "store": merged_store(now, ever),
        "factor": min((one["factor"] for one in now), default=1.0),
        "requests": merged_requests(ever),
        "latency": merged_latency(now),
        "rules": merged_rules(ever, rules, merged_rates(now)),
        "series": series(by_second, end=second, step=1, length=SECONDS),
        "minutes": series(by_minute, end=minute, step=MINUTE, length=MINUTES),
        "busiest_keys": merged_keys(row for one in now for row in one["busiest_keys"]),
        "refused_keys": merged_keys(row for one in now for row in one["refused_keys"]),
        "hot_keys": merged_keys(row for one in now for row in one["hot_keys"]),
        "bounds": merged_bounds(row for one in now for row in one["bounds"]),
        "queues": merged_queues(row for one in now for row in one["queues"]),
    }


def _lines(
    workers: Sequence[tuple[State, Series]], now_ns: int, at_ns: int
) -> tuple[tuple[Lines, Lines], tuple[int, int]]:
    """All lines by second and by minute, and the numbers of their last points."""
    series = [one for _, one in workers]
    here = [one for state, one in workers if fresh([state], now_ns)]
    now = at_ns // SECOND
    second = common_end((one.seconds.end for one in here), otherwise=now - 1)
    minute = common_end((one.minutes.end for one in here), otherwise=now // MINUTE - 1)
    by_second = merged_lines((one.seconds for one in series), end=second, length=SECONDS)
    by_minute = merged_lines((one.minutes for one in series), end=minute, length=MINUTES)
    return (by_second, by_minute), (second, minute)


def encoded_view(view: dict[str, Any]) -> bytes:
    """Encode *view* as JSON in small pieces, between which other threads can run."""
    return (
        b"{"
        + b",".join([json_of(key) + b":" + _piece(key, value) for key, value in view.items()])
        + b"}"
    )


def _piece(key: str, value: Any) -> bytes:
    if key not in ("series", "minutes"):
        return json_of(value)
    rules = [json_of(rule) + b":" + json_of(lines) for rule, lines in value["rules"].items()]
    before = {name: part for name, part in value.items() if name != "rules"}
    return json_of(before)[:-1] + b',"rules":{' + b",".join(rules) + b"}}"
