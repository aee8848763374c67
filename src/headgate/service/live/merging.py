"""Several workers' snapshots as one picture of the node. Pure; in whatever order they come.

What is counted is added up. What holds at the moment is told by those only who have been heard of
lately: a worker that has died, and has no successor yet, has counted what it has, but no key is
busy there any more.
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


# Several workers' points as one series: what is drawn, and what is told per second. Pure.


MOST_DRAWN: Final = 100
"""How many rules are in a series, the busiest."""

PATIENCE: Final = 2
"""Points that the last one waits for a worker that is late."""

Lines = dict["Line", list[int]]


def common_end(ends: Iterable[int | None], *, otherwise: int) -> int:
    """The last point that all have, but for those who are late by more than `PATIENCE`."""
    known = [end for end in ends if end is not None]
    if not known:
        return otherwise
    return max(min(known), max(known) - PATIENCE)


def merged_lines(all_of: Iterable[Points], *, end: int, length: int) -> Lines:
    """The lines of all, added up: *length* points each, the last of them number *end*."""
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
    """*values* with *late* points less at the end, or more if it is negative."""
    if late >= 0:
        until = len(values) - late
        kept = values[max(0, until - length) : max(0, until)].tolist()
        return [0] * (length - len(kept)) + kept
    kept = values[-late:].tolist()[-length:]
    after = min(-late, length)
    return [0] * (length - len(kept) - after) + kept + [0] * after


def series(lines: Lines, *, end: int, step: int, length: int) -> dict[str, Any]:
    """*lines* of whole requests, and by rule and outcome for the busiest rules."""
    totals: dict[str, int] = {}
    for (rule, _), values in lines.items():
        if rule != WHOLE:
            totals[rule] = totals.get(rule, 0) + sum(values)
    busiest = sorted(totals, key=lambda rule: (-totals[rule], rule))[:MOST_DRAWN]
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


# All workers of a node as one picture: what `/admin/v1/live` answers. Pure.


def merged_picture(
    heard: Sequence[tuple[State, Series]],
    rules: Sequence[Declared],
    *,
    now_ns: int,
    at_ns: int,
) -> dict[str, Any]:
    """The picture of all workers that were *heard* of; *rules* are the policy's."""
    ever = [state for state, _ in heard]
    now = fresh(ever, now_ns)
    lines, last = _lines(heard, now_ns, at_ns)
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
    heard: Sequence[tuple[State, Series]], now_ns: int, at_ns: int
) -> tuple[tuple[Lines, Lines], tuple[int, int]]:
    """All lines by second and by minute, and the numbers of their last points."""
    series = [one for _, one in heard]
    here = [one for state, one in heard if fresh([state], now_ns)]
    now = at_ns // SECOND
    second = common_end((one.seconds.end for one in here), otherwise=now - 1)
    minute = common_end((one.minutes.end for one in here), otherwise=now // MINUTE - 1)
    by_second = merged_lines((one.seconds for one in series), end=second, length=SECONDS)
    by_minute = merged_lines((one.minutes for one in series), end=minute, length=MINUTES)
    return (by_second, by_minute), (second, minute)


def encoded_picture(picture: dict[str, Any]) -> bytes:
    """*picture* as JSON, in small pieces: in between, others have their turn."""
    return (
        b"{"
        + b",".join([json_of(key) + b":" + _piece(key, value) for key, value in picture.items()])
        + b"}"
    )


def _piece(key: str, value: Any) -> bytes:
    if key not in ("series", "minutes"):
        return json_of(value)
    rules = [json_of(rule) + b":" + json_of(lines) for rule, lines in value["rules"].items()]
    before = {name: part for name, part in value.items() if name != "rules"}
    return json_of(before)[:-1] + b',"rules":{' + b",".join(rules) + b"}}"
