"""Rounds of some processes with one Redis and one hot key."""

from __future__ import annotations

import multiprocessing
import random
from dataclasses import dataclass
from itertools import chain
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.leases.asking import PATIENCE, Notes, Orders, take_part
from benchmarks.leases.bucket import overshoot
from benchmarks.leases.meter import Meter
from benchmarks.leases.ways import ABOVE, FLEET, FREE, FULL, HALF, LIMIT, PROCESSES, WAYS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.queues import Queue

    from benchmarks.leases.ways import Traffic, Way
    from tests.support.servers import RedisServer

MICROSECONDS: Final = 1_000_000


class Case(NamedTuple):
    """Who asks for how much, and in which way it is decided."""

    traffic: Traffic
    processes: int
    way: Way


CASES: Final = tuple(
    Case(traffic, processes, way)
    for traffic, fleets in {
        FREE: PROCESSES,
        HALF: (FLEET,),
        FULL: (FLEET,),
        ABOVE: PROCESSES,
    }.items()
    for processes in fleets
    for way in WAYS
)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to, all processes together."""

    checks_a_second: float
    admitted_a_second: float
    round_trips: float
    """For each check."""
    redis_us: float
    """Processor time of the server, for each check."""
    redis_share: float
    """The same as a part of one core."""
    overshoot: float
    """Units in any time t beyond C + R t."""

    @classmethod
    def of(cls, notes: Sequence[Notes], spent: Meter) -> Round:
        checks = sum(one.checks for one in notes)
        refused = sum(one.refused for one in notes)
        took_s = max(one.took_s for one in notes)
        times = chain.from_iterable(one.admitted for one in notes)
        return cls(
            checks / took_s,
            (checks - refused) / took_s,
            spent.round_trips / checks,
            spent.cpu_s * MICROSECONDS / checks,
            spent.cpu_s / took_s,
            overshoot(times, LIMIT.capacity, int(LIMIT.per_second)),
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """What some rounds came to: the medians, but the largest overshoot, beside what is *bound*."""

    checks_a_second: float
    admitted_a_second: float
    round_trips: float
    redis_us: float
    redis_share: float
    overshoot: float
    bound: int

    @classmethod
    def of(cls, rounds: Sequence[Round], bound: int) -> Figures:
        return cls(
            round(median(one.checks_a_second for one in rounds)),
            round(median(one.admitted_a_second for one in rounds)),
            median(one.round_trips for one in rounds),
            round(median(one.redis_us for one in rounds), 3),
            round(median(one.redis_share for one in rounds), 4),
            round(max(one.overshoot for one in rounds), 1),
            bound,
        )


def play(server: RedisServer, case: Case, warm_s: float, seconds: float) -> Round:
    """One round, with a counter that nobody has used before."""
    orders = Orders(
        server.url, f"bench-{token_hex(4)}", case.way, case.traffic, case.processes, warm_s, seconds
    )
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(case.processes + 1)
    done: Queue[Notes] = context.Queue()
    asking = [
        context.Process(target=take_part, args=(orders, gate, done), daemon=True)
        for _ in range(case.processes)
    ]
    for process in asking:
        process.start()
    gate.wait(PATIENCE)
    before = Meter.read(server)
    gate.wait(PATIENCE)
    gate.wait(PATIENCE)
    spent = Meter.read(server).since(before)
    gate.wait(PATIENCE)
    notes = [done.get(timeout=PATIENCE) for _ in asking]
    for process in asking:
        process.join()
    return Round.of(notes, spent)


def measure_fleets(
    server: RedisServer, rounds: int, warm_s: float, seconds: float
) -> dict[Case, Figures]:
    """All cases in turns, every round in a new order."""
    taken: dict[Case, list[Round]] = {case: [] for case in CASES}
    for seed in range(rounds):
        for case in random.Random(seed).sample(CASES, len(CASES)):
            taken[case].append(play(server, case, warm_s, seconds))
    return {
        case: Figures.of(found, case.way.bound(case.processes)) for case, found in taken.items()
    }
