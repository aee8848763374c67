"""What the run is held to, and whether it was met. All of them are ratios within the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.redis.bare import BARE, BARE_ASYNC, BARE_LONE
from benchmarks.redis.ours import OURS, OURS_ASYNC, ours
from benchmarks.redis.peers import PEERS
from benchmarks.redis.raw import RAW
from benchmarks.redis.redis_benchmark import PIPELINED
from benchmarks.redis.samples import ratio

if TYPE_CHECKING:
    from benchmarks.redis.arrivals import Arrivals
    from benchmarks.redis.memory import Weight
    from benchmarks.redis.samples import Samples

LEAST_TIMES_THE_BEST_PEER = 10.0
LEAST_PART_OF_REDIS_BENCHMARK = 0.8
MOST_OF_BARE_ASYNC = 0.5
MOST_OF_BARE_SYNC = 0.6
MOST_P99_MS = 1.0
MOST_P99_RATIO = 1.5
"""Of the bare protocol in the same run."""
MOST_OF_SINGLE_COST = 2 / 3
MOST_BYTES_A_KEY = 125.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A number and the bound it must keep."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.met else "MISSED"
        return f"{verdict:6}  {self.value:7.2f}  (goal {sign} {self.bound:.4g})  {self.what}"


def throughput_goals(rates: Samples) -> list[Goal]:
    """The best peer is the one that the comparison favours most."""
    lead = {peer.name: ratio(rates, OURS_ASYNC.name, peer.name) for peer in PEERS}
    best = min(lead, key=lead.__getitem__)
    return [
        Goal(
            f"checks a second, 200 callers: ours / the best peer ({best})",
            lead[best],
            LEAST_TIMES_THE_BEST_PEER,
            at_least=True,
        ),
        Goal(
            f"checks a second, 200 callers: ours / {PIPELINED.name}",
            ratio(rates, OURS_ASYNC.name, PIPELINED.name),
            LEAST_PART_OF_REDIS_BENCHMARK,
            at_least=True,
        ),
    ]


def lone_goals(lone_async: Samples, lone_sync: Samples) -> list[Goal]:
    return [
        Goal(
            "a lone async check: ours / redis-py's bare EVALSHA",
            ratio(lone_async, OURS_ASYNC.name, BARE_LONE.name),
            MOST_OF_BARE_ASYNC,
        ),
        Goal(
            "a lone sync check: ours / redis-py's bare EVALSHA",
            ratio(lone_sync, OURS.name, BARE.name),
            MOST_OF_BARE_SYNC,
        ),
    ]


def arrival_goals(arrivals: dict[str, Arrivals]) -> list[Goal]:
    p99, bare = [arrivals[one.name].latency.p99 for one in (OURS_ASYNC, RAW)]
    most = max(MOST_P99_MS, MOST_P99_RATIO * bare)  # where the machine itself is slower
    return [Goal("10,000 checks a second: p99, ms", p99, most)]


def cost_goals(costs: dict[str, Samples]) -> list[Goal]:
    """Beside a script a check as redis-py sends it, and as nobody could send it for less."""
    kinds = {"cpu": "CPU of the server a check", "script": "of it in scripts"}
    return [
        Goal(
            f"{what}: ours / a script a check ({single})",
            ratio(costs[kind], OURS_ASYNC.name, single),
            MOST_OF_SINGLE_COST,
        )
        for single in (BARE_ASYNC.name, PIPELINED.name)
        for kind, what in kinds.items()
    ]


def memory_goals(memory: dict[str, dict[str, Weight]]) -> list[Goal]:
    """Of short keys. The length of a key is the caller's choice, and Redis keeps all of it."""
    names = [ours(algorithm).name for algorithm in ("gcra", "token_bucket")]
    weights = {name: memory[name]["short"] for name in names}
    return [
        Goal(f"bytes a key, {name}, such as {weight.key}", weight.bytes, MOST_BYTES_A_KEY)
        for name, weight in weights.items()
    ]
