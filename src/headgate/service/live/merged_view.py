"""Merges the snapshots of several workers into one view of the node. Pure, in any order.

Counters are added up. Current values come from live workers only: a dead worker without a successor
has counted what it has, but has no busy keys.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from dataclasses import replace
from math import fsum
from operator import add
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.observability.candidates import merged_candidates
from headgate.observability.metrics import PREFIX, text_of
from headgate.service.live.recorder import OUTAGE, OUTCOMES, WHOLE, quantile
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.observability.metrics import Labels, MetricSnapshot
    from headgate.service.live.recorder import Line, Series
    from headgate.service.live.snapshot import KeyRow, Snapshot

STALE_NS: Final = 10 * SECOND
"""Age from which a worker counts as dead."""

SHOWN_SECONDS: Final = 120
MAX_SHOWN: Final = 20
MAX_RULES: Final = 1_000
MAX_SERIES_RULES: Final = 100
"""Rules in a series, the busiest."""

MAX_LAG: Final = 2
"""Points that the last one waits for a worker that is late."""

DECISIONS: Final = "decisions"
"""The metric whose samples are the cells of a snapshot."""

Declared = tuple[str, str, str | None]
"""A rule of the policy: its id, its mode, the rule it is a candidate of."""


def merged_view(
    ever: Sequence[Snapshot],
    rules: Sequence[Declared],
    *,
    now_ns: int,
    at_ns: int,
    show_key: Callable[[str], str],
    node: str = "",
) -> dict[str, Any]:
    """The view of all workers of a node, the reply of `/admin/v1/live`; *rules* are those of the
    policy."""
    now = [one for one in ever if is_live(one, now_ns)]
    latency = [sum(column) for column in zip(*(one.latency for one in now), strict=True)]
    return {
        "at": at_ns / SECOND,
        "began": min(one.began for one in ever),
        "version": __version__,
        "workers": len(now),
        "node": node,
        "nodes": max((one.nodes for one in now), key=len, default=[]),
        "policy": _policy(now),
        "store": _store(now, ever),
        "factor": min((one.factor for one in now), default=1.0),
        "requests": {
            "allowed": sum(one.requests[1] for one in ever),
            "denied": sum(one.requests[0] for one in ever),
        },
        "latency": {
            **{f"p{share}": quantile(latency, share / 100) for share in (50, 90, 99)},
            "count": sum(latency),
        },
        "rules": _rules(now, ever, rules),
        "series": _series(now, ever, at_ns // SECOND - 1),
        "busiest_keys": keys_of_all((row for one in now for row in one.keys.busiest), show_key),
        "refused_keys": keys_of_all((row for one in now for row in one.keys.denied), show_key),
        "hot_keys": keys_of_all((row for one in now for row in one.keys.hot), show_key),
        "bounds": _bounds(row for one in now for row in one.keys.bounds),
        "queues": _queues(now),
        "candidates": merged_candidates(
            [row for one in ever for row in one.candidates], at_ns / SECOND
        ),
    }


def is_live(snapshot: Snapshot, now_ns: int) -> bool:
    """True if the worker of *snapshot* is alive."""
    return now_ns - snapshot.seen_ns <= STALE_NS


def _policy(now: Sequence[Snapshot]) -> dict[str, Any]:
    """The policy that is in force on all workers, and the worst problem of any."""
    all_of = [one.policy for one in now]
    revisions = [one["revision"] for one in all_of]
    troubles = [one["trouble"] for one in all_of if one["trouble"] is not None]
    return {
        "revision": None if None in revisions else min(revisions, default=None),
        "rules": min((one["rules"] for one in all_of), default=0),
        "current": all(one["current"] for one in all_of),
        "stale": any(one["stale"] for one in all_of),
        "trouble": min(troubles, default=None),
        "problems": max((one["problems"] for one in all_of), default=0),
        "failures": max((one["failures"] for one in all_of), default=0),
    }


_WORSE: Final = ("ok", "failing", "open")


def _store(now: Sequence[Snapshot], ever: Sequence[Snapshot]) -> dict[str, Any]:
    """The worst state of the store on any live worker; calls and errors of all."""
    stores = [one.store for one in now]
    outages = [one for one in stores if one["open_for"] is not None]
    worst = max(
        outages, key=lambda one: one["open_for"], default={"reason": None, "open_for": None}
    )
    errors: Counter[str] = Counter()
    for one in ever:
        errors.update(one.store["errors"])
    return {
        "url": min((one["url"] for one in stores), default=""),
        "state": max((one["state"] for one in stores), key=_WORSE.index, default="ok"),
        "trouble": sorted({text for one in stores for text in one["trouble"]}),
        "reason": worst["reason"],
        "open_for": worst["open_for"],
        "errors": dict(sorted(errors.items())),
        "calls": sum(one.store["calls"] for one in ever),
        "fail_mode": max((one["fail_mode"] for one in stores), default=0),
    }


def _rules(
    now: Iterable[Snapshot], ever: Iterable[Snapshot], declared: Sequence[Declared]
) -> list[dict[str, Any]]:
    """The rules of the policy in order, followed by other rules that were counted.

    Of more than `MAX_RULES`, the busiest.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    sources: dict[str, Counter[str]] = defaultdict(Counter)
    for one in ever:
        for cells in (one.cells, one.previous):
            for (rule, outcome, source), count in cells.items():
                counts[rule][outcome] += count
                sources[rule][source] += count
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    source_rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in now:
        for (rule, outcome, source), rate in one.rates.items():
            rates[rule][outcome].append(rate)
            source_rates[rule][source].append(rate)
    known = {rule for rule, _, _ in declared}
    others = [(rule, None, None) for rule in sorted(counts) if rule not in known]
    rows: list[dict[str, Any]] = [
        {
            "rule_id": rule,
            "mode": mode,
            "candidate_of": candidate_of,
            **{outcome: counts[rule][outcome] for outcome in OUTCOMES},
            "per_second": dict.fromkeys(OUTCOMES, 0.0) | _rounded_sums(rates[rule]),
            "sources": dict(sorted(sources[rule].items())),
            "sources_per_second": _rounded_sums(source_rates[rule]),
        }
        for rule, mode, candidate_of in (*declared, *others)
    ]
    if len(rows) <= MAX_RULES:
        return rows
    busiest = sorted(rows, key=lambda row: (-counts[row["rule_id"]].total(), row["rule_id"]))
    kept = {row["rule_id"] for row in busiest[:MAX_RULES]}
    return [row for row in rows if row["rule_id"] in kept]


def _rounded_sums(rates: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(fsum(some), 2) for name, some in sorted(rates.items())}


def keys_of_all(rows: Iterable[KeyRow], show_key: Callable[[str], str]) -> list[dict[str, Any]]:
    """The busiest keys of all workers as they are displayed; equal keys are added up."""
    found: dict[tuple[str | None, str], list[tuple[float, float]]] = defaultdict(list)
    for rule, key, least, most in rows:
        found[rule, key].append((least, most))
    merged: list[dict[str, Any]] = [
        {
            "rule_id": rule,
            "key": show_key(key),
            "per_second": round(fsum(least for least, _ in pairs), 1),
            "at_most": round(fsum(most for _, most in pairs), 1),
        }
        for (rule, key), pairs in found.items()
    ]
    merged.sort(key=lambda row: (-row["per_second"], row["rule_id"] or "", row["key"]))
    return merged[:MAX_SHOWN]


def _bounds(rows: Iterable[tuple[str | None, int, int]]) -> list[dict[str, Any]]:
    """The overshoot of limits, a figure of the fleet: the largest that any worker knows."""
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


def _queues(now: Iterable[Snapshot]) -> list[dict[str, Any]]:
    """The queues at each gate, summed over workers; the wait is that of the slowest."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for one in now:
        for gate, row in one.queues.items():
            found[gate].append(row)
    return [
        {
            "gate": gate,
            "waiting": sum(int(row[0]) for row in rows),
            "in_flight": sum(int(row[1]) for row in rows),
            "slots": sum(int(row[2]) for row in rows),
            "wait_seconds": max(row[3] for row in rows),
        }
        for gate, rows in sorted(found.items())
    ]


def last_second(live: Iterable[Series], otherwise: int) -> int:
    """The last second that all *live* workers have, except those late by more than `MAX_LAG`."""
    ends = [one.end for one in live if one.end is not None]
    return max(min(ends), max(ends) - MAX_LAG) if ends else otherwise


def _series(now: Sequence[Snapshot], ever: Sequence[Snapshot], last: int) -> dict[str, Any]:
    """The sums of all requests, and by rule and outcome for the busiest rules.

    They end with the last second of the live workers; without any with *last*.
    """
    end = last_second([one.seconds for one in now], last)
    lines: dict[Line, array[int]] = {}
    for one in ever:
        for line, values in one.seconds.moved_to(end).items():
            known = lines.get(line)
            recent = values[-SHOWN_SECONDS:]
            lines[line] = recent if known is None else array("q", map(add, known, recent))
    totals: Counter[str] = Counter()
    for (rule, _), values in lines.items():
        totals[rule] += sum(values)
    del totals[WHOLE]
    busiest = sorted(totals, key=lambda rule: (-totals[rule], rule))[:MAX_SERIES_RULES]
    nothing = array("q", bytes(8 * SHOWN_SECONDS))

    def points(rule: str, *outcomes: str) -> dict[str, list[int]]:
        return {one: lines.get((rule, one), nothing).tolist() for one in outcomes}

    is_out = [second > 0 for second in lines.get(OUTAGE, nothing)]

    return {
        "end": end,
        "step": 1,
        "requests": points(WHOLE, "allowed", "denied"),
        "outage": is_out if any(is_out) else [],
        "rules": {rule: points(rule, *OUTCOMES) for rule in busiest if totals[rule]},
    }


def encoded_view(view: dict[str, Any]) -> bytes:
    """Encode *view* as JSON in small pieces, between which other threads can run."""
    return b"{" + b",".join(_member(key, value) for key, value in view.items()) + b"}"


def _member(key: str, value: Any) -> bytes:
    if key != "series":
        return _json(key) + b":" + _json(value)
    rules = b",".join(_member(rule, lines) for rule, lines in value["rules"].items())
    before = {name: part for name, part in value.items() if name != "rules"}
    return _json(key) + b":" + _json(before)[:-1] + b',"rules":{' + rules + b"}}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def metrics_text(workers: Iterable[tuple[Labels, Snapshot]], now_ns: int) -> str:
    """The Prometheus text of all workers, each with its labels. Of dead ones, only counters."""
    found: list[MetricSnapshot] = []
    for labels, snapshot in workers:
        for metric in snapshot.metrics:
            if metric.kind == "gauge" and not is_live(snapshot, now_ns):
                continue
            is_decisions = metric.name == f"{PREFIX}{DECISIONS}"
            found.append(_with_cells(metric, labels, snapshot) if is_decisions else metric)
    return text_of(one for one in found if one.samples)


def _with_cells(metric: MetricSnapshot, marks: Labels, snapshot: Snapshot) -> MetricSnapshot:
    samples = [
        ("_total", (*marks, ("outcome", outcome), ("rule", rule), ("source", source)), count)
        for (rule, outcome, source), count in snapshot.cells.items()
    ]
    return replace(metric, samples=tuple(samples))
