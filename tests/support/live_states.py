"""Snapshots of workers."""

from __future__ import annotations

import functools
from array import array
from typing import TYPE_CHECKING, Any

from headgate.observability.decision_recorder import BOUNDS_NS
from headgate.service.live.recorder import MINUTES, OUTCOMES, SECONDS, Series
from headgate.service.live.snapshot import Snapshot, TopKeys
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from headgate.service.live.recorder import Line
    from headgate.service.live.snapshot import KeyRow

NOW = 1_763_320_000
"""Seconds since the epoch."""
NOW_NS = 500 * SECOND
"""On the monotonic clock."""

POLICY: dict[str, Any] = {
    "revision": 7,
    "rules": 2,
    "current": True,
    "stale": False,
    "trouble": None,
    "problems": 0,
    "failures": 0,
}
STORE: dict[str, Any] = {
    "url": "redis://host/0",
    "state": "ok",
    "trouble": [],
    "reason": None,
    "open_for": None,
    "errors": {},
    "calls": 0,
    "fail_mode": 0,
}


def snapshot_of(**more: Any) -> Snapshot:
    """The snapshot of a worker that has just started, except for what *more* has.

    *allowed* are the last points of rules by second until *end*.
    """
    end, allowed = more.pop("end", NOW - 1), more.pop("allowed", {})
    minute = None if end is None else end // 60 - 1
    lines: dict[Line, list[int]] = {(rule, "allowed"): points for rule, points in allowed.items()}
    found: dict[str, Any] = {
        "seen_ns": NOW_NS,
        "began": NOW - 100.0,
        "policy": POLICY,
        "store": STORE,
        "factor": 1.0,
        "requests": (0, 0),
        "latency": [0] * (len(BOUNDS_NS) + 1),
        "cells": {},
        "rates": {},
        "keys": TopKeys([], [], [], []),
        "queues": {},
        "seconds": series_of(end, SECONDS, lines),
        "minutes": series_of(minute, MINUTES, {}),
        "candidates": [],
        "metrics": (),
        "previous": {},
        "nodes": [],
    }
    return Snapshot(**{**found, **more})


def series_of(end: int | None, length: int, lines: Mapping[Line, list[int]]) -> Series:
    """Lines that are zero except for their last points."""
    points = {line: array("q", [0] * (length - len(last)) + last) for line, last in lines.items()}
    return Series(length, end, points)


def any_worker(random: Random) -> Snapshot:
    """Any worker: alive or dead, with any counts."""
    pick, count = random.choice, functools.partial(random.randint, 0, 50)
    end = pick([None, NOW - 1, NOW - 2, NOW - 40, NOW - 500])
    trouble = pick([None, "no answer", "no route"])
    troubles = [] if trouble is None else [trouble]
    errors = {reason: count() for reason in ("timeout", "busy") if pick([True, False])}
    policy = {"revision": pick([None, 6, 7]), "stale": bool(troubles), "trouble": trouble}
    store = {"state": pick(["ok", "failing", "open"]), "trouble": troubles, "errors": errors}
    names = [(rule, outcome, source) for rule in "abc" for outcome in OUTCOMES for source in "st"]
    return snapshot_of(
        seen_ns=NOW_NS - pick([0, 1, 9, 11, 100]) * SECOND,
        began=NOW - count() / 8,
        policy={**POLICY, **policy, "problems": pick([0, 2])},
        store={**STORE, **store, "calls": count()},
        factor=pick([0.5, 1.0]),
        requests=(count(), count()),
        latency=[count() for _ in range(len(BOUNDS_NS) + 1)],
        cells={pick(names): count() for _ in range(pick([0, 5]))},
        previous={pick(names): count() for _ in range(pick([0, 5]))},
        rates={pick(names): count() / 8 for _ in range(pick([0, 5]))},
        keys=TopKeys(
            _any_keys(random),
            _any_keys(random),
            _any_keys(random),
            [(pick("abc"), count(), count()) for _ in range(pick([0, 3]))],
        ),
        queues={gate: [count(), count(), count(), random.random()] for gate in pick(["", "ab"])},
        seconds=series_of(end, SECONDS, _any_lines(random)),
        minutes=series_of(None if end is None else end // 60 - 1, MINUTES, _any_lines(random)),
    )


def _any_keys(random: Random) -> list[KeyRow]:
    numbers = range(random.choice([0, 1, 6]))
    pick = random.choice
    return [(pick("ab"), pick("kl"), random.random(), 3 * random.random()) for _ in numbers]


def _any_lines(random: Random) -> dict[Line, list[int]]:
    lines = [(rule, outcome) for rule in "abc" for outcome in OUTCOMES]
    chosen = random.sample(lines, random.choice([0, 1, 5]))
    return {line: [random.randint(0, 9) for _ in range(9)] for line in chosen}
