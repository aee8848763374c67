"""Taking the samples: few rules and many in turns, so that noise disturbs both alike."""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import thread_time_ns
from typing import TYPE_CHECKING

from benchmarks.inprocess.measure import MILLISECOND, Timing, in_turns
from benchmarks.rules.shapes import PATHS
from headgate.policy.matcher import Matcher, normalised_path, readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.rules.shapes import Shape
    from headgate.engine.request import Request

FEW_RULES = 10
MANY_RULES = 10_000
NOBODY: dict[str, str | None] = {"tier": None}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    repeats: int
    sample_ns: int


FULL = Effort(repeats=40, sample_ns=4 * MILLISECOND)
QUICK = Effort(repeats=10, sample_ns=2 * MILLISECOND)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Nanoseconds a request: the same requests under few rules and under many, and under many when
    every request is for another rule, so that the processor's caches have none of it."""

    few: Timing
    many: Timing
    scattered: Timing
    build_ms: float
    """How long it takes to compile the many rules."""

    @property
    def ratio(self) -> float:
        return round(self.many.best / self.few.best, 2)


def compare(shape: Shape, effort: Effort) -> Comparison:
    few = Matcher(shape.policy(FEW_RULES))
    policy = shape.policy(MANY_RULES)
    start = thread_time_ns()
    many = Matcher(policy)
    build_ms = (thread_time_ns() - start) / MILLISECOND
    same = shape.requests(range(FEW_RULES))
    scattered = shape.requests(random.Random(3).sample(range(MANY_RULES), 2_000))
    _check(few, many, same, scattered)
    timings = in_turns(
        {
            "few": _sample(few, same, effort),
            "many": _sample(many, same, effort),
            "scattered": _sample(many, scattered, effort),
        },
        effort.repeats,
    )
    return Comparison(**timings, build_ms=round(build_ms, 1))


def time_paths(effort: Effort, names: Iterable[str] = PATHS) -> dict[str, dict[str, Timing]]:
    """Nanoseconds to normalise these of `PATHS`, and to read each in all the ways there are."""
    timed: dict[str, Callable[[str], object]] = {"normalised": normalised_path, "read": readings}
    return {
        name: in_turns(
            {
                label: _sample_path(function, PATHS[name], effort)
                for label, function in timed.items()
            },
            effort.repeats,
        )
        for name in names
    }


def _check(few: Matcher, many: Matcher, same: list[Request], scattered: list[Request]) -> None:
    """Every request is for one rule, under few and many alike: there is nothing else to pay."""
    for request in same:
        ids = [[rule.id for rule in each.matching(request, NOBODY)] for each in (few, many)]
        assert len(ids[0]) == 1, request
        assert ids[0] == ids[1], request
    assert all(len(many.matching(request, NOBODY)) == 1 for request in scattered)


def _sample(matcher: Matcher, requests: list[Request], effort: Effort) -> Callable[[], float]:
    matching = matcher.matching

    def run(rounds: int) -> int:
        start = thread_time_ns()
        for _ in range(rounds):
            for request in requests:
                matching(request, NOBODY)
        return thread_time_ns() - start

    rounds = max(1, effort.sample_ns // min(run(1) for _ in range(5)))
    return lambda: run(rounds) / (rounds * len(requests))


def _sample_path(
    function: Callable[[str], object], path: str, effort: Effort
) -> Callable[[], float]:
    def run(rounds: int) -> int:
        start = thread_time_ns()
        for _ in range(rounds):
            function(path)
        return thread_time_ns() - start

    rounds = max(1, effort.sample_ns * 10 // min(run(10) for _ in range(5)))
    return lambda: run(rounds) / rounds
