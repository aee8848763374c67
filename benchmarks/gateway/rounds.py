"""Samples in rounds, each way beside the gateway without rules in the same round."""

from __future__ import annotations

import os
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.gateway.load import full, paced
from benchmarks.gateway.ways import BARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.gateway.load import Sample
    from benchmarks.gateway.servers import Gateway, Server
    from benchmarks.gateway.ways import Way

RATE: Final = 300
"""How many requests come in a second when their times are taken: few enough for any machine."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds of samples, and how long a sample takes."""

    rounds: Mapping[str, int]
    seconds: int
    paced_rounds: int
    paced_seconds: float
    many_callers: bool = False


FULL: Final = Effort({"one core": 7, "all cores": 3}, 1, paced_rounds=4, paced_seconds=1.5)
QUICK: Final = Effort({"one core": 1, "all cores": 1}, 1, paced_rounds=1, paced_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Share:
    """How much of what goes through without rules does, and what a request costs.

    *ratios* are of requests a second; *by_cpu* is the median of those of the processor time that
    all programs together spend on a request, which other programs on the machine disturb less. Each
    is of one sample to those just before and after it.
    """

    ratios: tuple[float, ...]
    by_cpu: float
    best_rate: float
    envoy_us: float
    service_us: float

    @classmethod
    def of(cls, samples: Sequence[Sample], bare: Sequence[tuple[Sample, Sample]]) -> Share:
        """The share of *samples*, beside what was had without rules around each of them."""
        pairs = list(zip(samples, bare, strict=True))
        spent = [_mean(around, "all_us") / one.all_us for one, around in pairs]
        return cls(
            tuple(round(one.rate / _mean(around, "rate"), 3) for one, around in pairs),
            round(statistics.median(spent), 3),
            round(max(one.rate for one in samples)),
            round(min(one.envoy_us for one in samples), 1),
            round(min(one.service_us for one in samples), 1),
        )

    @property
    def median(self) -> float:
        return round(statistics.median(self.ratios), 3)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between which the middle half of the ratios is."""
        if len(self.ratios) == 1:
            return self.ratios[0], self.ratios[0]
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return round(low, 3), round(high, 3)

    @property
    def best(self) -> float:
        return max(self.ratios)


def processors(where: str) -> set[int]:
    """Those that everything runs on: all that there are, or one of them."""
    every = os.sched_getaffinity(0)
    return every if where == "all cores" else {max(every)}


def _mean(samples: Sequence[Sample], name: str) -> float:
    return statistics.fmean([getattr(one, name) for one in samples])


def shares(
    gateways: Mapping[Way, Gateway], servers: Sequence[Server], where: str, effort: Effort
) -> dict[Way, Share]:
    """The first of *servers* is the upstream.

    Every round has all ways in a new order. The gateway without rules is sampled between any two,
    and each sample's ratio is to what it had just before and after, so that a machine which gets
    slower or quicker meanwhile favours nobody.
    """
    cores = processors(where)
    for server in servers:
        server.stay_on(cores)
    ways = [way for way in gateways if way is not BARE]

    def sample(way: Way) -> Sample:
        return full(
            gateways[way],
            servers[0],
            cores,
            effort.seconds,
            many_callers=effort.many_callers,
        )

    bare = [sample(BARE)]
    taken: dict[Way, list[Sample]] = {way: [] for way in ways}
    around: dict[Way, list[tuple[Sample, Sample]]] = {way: [] for way in ways}
    for number in range(effort.rounds[where]):
        for way in random.Random(number).sample(ways, len(ways)):
            taken[way].append(sample(way))
            bare.append(sample(BARE))
            around[way].append((bare[-2], bare[-1]))
    of_bare = Share.of(bare, [(one, one) for one in bare])
    return {BARE: of_bare} | {way: Share.of(taken[way], around[way]) for way in ways}


def latencies(gateways: Mapping[Way, Gateway], effort: Effort) -> dict[Way, dict[str, float]]:
    """Microseconds at a steady rate, and how much more than without rules; the samples of all
    rounds together."""
    times: dict[Way, list[int]] = {way: [] for way in gateways}
    for number in range(effort.paced_rounds):
        for way in random.Random(number).sample(list(gateways), len(gateways)):
            times[way] += paced(gateways[way], RATE, effort.paced_seconds)
    found = {way: _percentiles(sorted(values)) for way, values in times.items()}
    bare = found[BARE]
    return {
        way: {**row, **{f"{name} added": row[name] - bare[name] for name in bare}}
        for way, row in found.items()
    }


def _percentiles(times: Sequence[int]) -> dict[str, float]:
    last = len(times) - 1
    return {"p50": float(times[last // 2]), "p99": float(times[last * 99 // 100])}
