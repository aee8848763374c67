"""What workers might say."""

from __future__ import annotations

import functools
from array import array
from typing import TYPE_CHECKING, Any, cast

from headgate.observability.decision_recorder import BOUNDS_NS
from headgate.service.live.recorder import MINUTES, OUTCOMES, SECONDS, Points
from headgate.service.live.snapshot import Series, State
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
    "errors": {},
    "calls": 0,
    "fail_mode": 0,
}


def state_of(**more: Any) -> State:
    """A worker that has just begun, but for what is said otherwise."""
    found = {
        "worker": 0,
        "at": float(NOW),
        "seen_ns": NOW_NS,
        "began": NOW - 100.0,
        "policy": POLICY,
        "store": STORE,
        "factor": 1.0,
        "requests": [0, 0],
        "latency": [0] * (len(BOUNDS_NS) + 1),
        "cells": [],
        "rates": [],
        "busiest_keys": [],
        "refused_keys": [],
        "hot_keys": [],
        "bounds": [],
        "queues": [],
        **more,
    }
    return cast("State", found)


def points_of(end: int | None, length: int, lines: Mapping[Line, list[int]]) -> Points:
    """Lines that are zero but for their last points."""
    return Points(
        end,
        {line: array("q", [0] * (length - len(last)) + last) for line, last in lines.items()},
    )


def series_of(end: int | None = NOW - 1, **last: list[int]) -> Series:
    """What rules have allowed in the last seconds until *end*, and nothing by the minute."""
    minute = None if end is None else end // 60 - 1
    return Series(
        points_of(end, SECONDS, {(rule, "allowed"): points for rule, points in last.items()}),
        points_of(minute, MINUTES, {}),
    )


def any_worker(random: Random) -> tuple[State, Series]:
    """Any worker: here or gone, with any counts."""
    pick, count = random.choice, functools.partial(random.randint, 0, 50)
    end = pick([None, NOW - 1, NOW - 2, NOW - 40, NOW - 500])
    trouble = pick([None, "no answer", "no route"])
    told = [] if trouble is None else [trouble]
    errors = {reason: count() for reason in ("timeout", "busy") if pick([True, False])}
    policy = {"revision": pick([None, 6, 7]), "stale": bool(told), "trouble": trouble}
    store = {"state": pick(["ok", "failing", "open"]), "trouble": told, "errors": errors}
    state = state_of(
        worker=pick([0, 1, 2]),
        seen_ns=NOW_NS - pick([0, 1, 9, 11, 100]) * SECOND,
        began=NOW - count() / 8,
        policy={**POLICY, **policy, "problems": pick([0, 2])},
        store={**STORE, **store, "calls": count()},
        factor=pick([0.5, 1.0]),
        requests=[count(), count()],
        latency=[count() for _ in range(len(BOUNDS_NS) + 1)],
        cells=[(pick("abc"), pick(OUTCOMES), pick("st"), count()) for _ in range(pick([0, 5]))],
        rates=[(pick("abc"), pick(OUTCOMES), pick("st"), count() / 8) for _ in range(pick([0, 5]))],
        busiest_keys=_any_keys(random),
        refused_keys=_any_keys(random),
        hot_keys=_any_keys(random),
        bounds=[(pick("abc"), count(), count()) for _ in range(pick([0, 3]))],
        queues=[(gate, count(), count(), count(), random.random()) for gate in pick(["", "ab"])],
    )
    return state, Series(
        points_of(end, SECONDS, _any_lines(random)),
        points_of(None if end is None else end // 60 - 1, MINUTES, _any_lines(random)),
    )


def _any_keys(random: Random) -> list[KeyRow]:
    numbers = range(random.choice([0, 1, 6]))
    pick = random.choice
    return [(pick("ab"), pick("kl"), random.random(), 3 * random.random()) for _ in numbers]


def _any_lines(random: Random) -> dict[Line, list[int]]:
    lines = [(rule, outcome) for rule in "abc" for outcome in OUTCOMES]
    chosen = random.sample(lines, random.choice([0, 1, 5]))
    return {line: [random.randint(0, 9) for _ in range(9)] for line in chosen}
