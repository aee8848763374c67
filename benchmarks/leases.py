"""`python -m benchmarks.leases`: round trips that leases save, and what they allow beyond a limit.

Four processes with one Redis and one hot key, under three kinds of traffic. The picture
docs/img/accuracy.png is drawn from the record.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import random
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import Goal, processors_awake, table, write_record
from headgate import RateLimiter
from headgate.limits import EXACT, Accuracy, TokenBucket
from headgate.stores.layers.leases.lease import LeaseGroup
from headgate.units import MILLISECOND, SECOND
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "leases.json"
PICTURE: Final = ROOT / "docs" / "img" / "accuracy.png"
LIMIT: Final = TokenBucket(4_000, 4_000)
"""Low enough for exact decisions to reach it on a small machine."""
OUT_OF_REACH: Final = TokenBucket(10**9, 1_000)
KEY: Final = "user:42"
PROCESSES: Final = 4
TIMEOUT: Final = 60.0
SYNC_NS: Final = 100 * MILLISECOND
MODES: Final = {
    "exact": EXACT,
    "lease, batch 10": Accuracy(batch=10),
    "lease, batch 100": Accuracy(batch=100),
    "lease, batch 1,000": Accuracy(batch=1_000),
    "lease, 1 %": Accuracy(max_overshoot=Fraction(1, 100)),
    "lease, 10 %": Accuracy(max_overshoot=Fraction(1, 10)),
    "sync 100 ms, 10 %": Accuracy(max_overshoot=Fraction(1, 10), sync_ns=SYNC_NS),
    "sync 100 ms": Accuracy(sync_ns=SYNC_NS),
}
FREE: Final = "limit out of reach"
AT_LIMIT: Final = "the limit"
ABOVE: Final = "far above the limit"
TRAFFIC: Final = {FREE: None, AT_LIMIT: 1.0, ABOVE: None}
"""The part of the limit that all processes send together; None: as much as they can."""


@dataclass(frozen=True, slots=True)
class Case:
    """Kind of traffic and mode of one run; leases grow for *warm_s*, then *seconds* count."""

    traffic: str
    mode: str
    warm_s: float
    seconds: float

    @property
    def limit(self) -> TokenBucket:
        return OUT_OF_REACH if self.traffic == FREE else LIMIT

    def bound(self) -> int:
        """The units that may be allowed beyond the limit."""
        group = LeaseGroup(self.mode, LIMIT, MODES[self.mode])
        group.holders = PROCESSES
        return group.bound().bound


@dataclass(frozen=True, slots=True)
class Figures:
    """Results of one or more runs. *round_trips* and *redis_us* are for each check, *overshoot* is
    the most units in any time t beyond C + R t, and *bound* what is promised for it."""

    checks_a_second: float
    allowed_a_second: float
    round_trips: float
    redis_us: float
    overshoot: float
    bound: int


class Node:
    """One process: hits the key and records when a hit was allowed."""

    def __init__(self, case: Case, url: str, namespace: str) -> None:
        self._case = case
        self._limiter = RateLimiter(
            case.limit,
            store=url,
            name="api",
            namespace=namespace,
            accuracy=MODES[case.mode],
            on_store_failure="fail_closed",
        )
        self.checks = self.denied = 0
        self.allowed_ns: list[int] = []

    def run(self, share: float | None, seconds: float) -> float:
        """Hit for *seconds* at *share* of the limit; return the seconds that it took."""
        began = time.monotonic()
        end = began + seconds
        per_second = float(LIMIT.per_second) * (share or 0) / PROCESSES
        sent = 0
        while (now := time.monotonic()) < end:
            hits = 20 if share is None else int((now - began) * per_second) - sent
            self._hit(hits)
            sent += hits
            if share is not None:
                time.sleep(0.001)
        return time.monotonic() - began

    def _hit(self, hits: int) -> None:
        hit, record = self._limiter.hit, self._case.traffic != FREE
        for _ in range(hits):
            if not hit(KEY):
                self.denied += 1
            elif record:
                self.allowed_ns.append(time.monotonic_ns())
        self.checks += hits

    def close(self) -> None:
        self._limiter.close()


def _node(case: Case, url: str, namespace: str, gate: Barrier, done: Queue[Any]) -> None:
    """Take part in a run: all processes are at the gate before and after the time that counts."""
    gc.freeze()
    node = Node(case, url, namespace)
    node.run(None if case.traffic == FREE else 0.5, case.warm_s)
    gate.wait(TIMEOUT)
    gate.wait(TIMEOUT)
    node.checks = node.denied = 0
    seconds = node.run(TRAFFIC[case.traffic], case.seconds)
    gate.wait(TIMEOUT)
    gate.wait(TIMEOUT)
    node.close()
    done.put((node.checks, node.denied, seconds, node.allowed_ns))


def measure(server: RedisServer, case: Case) -> Figures:
    """One run, with a new counter."""
    context = multiprocessing.get_context("fork")
    gate, done = context.Barrier(PROCESSES + 1), context.Queue()
    args = (case, server.url, f"bench-{token_hex(4)}", gate, done)
    running = [context.Process(target=_node, args=args, daemon=True) for _ in range(PROCESSES)]
    for process in running:
        process.start()
    gate.wait(TIMEOUT)
    cpu_before, trips_before = _work_of(server)
    gate.wait(TIMEOUT)
    gate.wait(TIMEOUT)
    cpu_s, trips = _work_of(server)
    gate.wait(TIMEOUT)
    replies = [done.get(timeout=TIMEOUT) for _ in running]
    counts, denials, times, allowed = zip(*replies, strict=True)
    for process in running:
        process.join()
    checks, seconds = sum(counts), max(times)
    return Figures(
        checks / seconds,
        (checks - sum(denials)) / seconds,
        (trips - trips_before) / checks,
        (cpu_s - cpu_before) * 1e6 / checks,
        overshoot(when for one in allowed for when in one),
        case.bound(),
    )


def _work_of(server: RedisServer) -> tuple[float, int]:
    """Seconds of processor time and scripts run, since the server started."""
    lines = server.cli("info", "cpu", "commandstats").splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    calls = [found.get(f"cmdstat_{name}", "") for name in ("eval", "evalsha", "fcall")]
    scripts = sum(int(one.partition("calls=")[2].partition(",")[0] or 0) for one in calls)
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"]), scripts


def overshoot(allowed_ns: Iterable[int]) -> float:
    """The most units in any time t beyond C + R t: how far a bucket that never denies falls below
    zero."""
    full = level = LIMIT.capacity * SECOND
    last_ns = lowest = 0
    for when_ns in sorted(allowed_ns):
        level = min(full, level + int(LIMIT.per_second) * (when_ns - last_ns)) - SECOND
        lowest, last_ns = min(lowest, level), when_ns
    return -lowest / SECOND


def combined(runs: list[Figures]) -> Figures:
    """The medians, but the largest overshoot."""
    rows = [asdict(one) for one in runs]
    found = {name: median(row[name] for row in rows) for name in rows[0]}
    return Figures(**{**found, "overshoot": max(one.overshoot for one in runs)})


def goals_of(found: dict[Case, Figures]) -> list[Goal]:
    goals = []
    for case, figures in found.items():
        batch = MODES[case.mode].batch
        if case.traffic == FREE:
            if batch is not None:
                what = f"round trips for as many hits as a batch has, {case.mode}"
                goals.append(Goal(what, round(figures.round_trips * batch, 2), 1))
        elif case.mode == "exact":  # a grant is recorded a little later: a unit of each process
            goals.append(Goal("units beyond the limit, exact", figures.overshoot, PROCESSES))
        else:
            what = f"beyond the limit, of the bound, {case.mode}, {case.traffic}"
            goals.append(Goal(what, round(figures.overshoot / figures.bound, 3), 1))
    return goals


def tables(found: dict[Case, Figures]) -> Iterable[str]:
    columns = ("checks/s", "allowed/s", "round trips", "Redis us", "beyond", "bound")
    for traffic in TRAFFIC:
        rows = [
            [
                case.mode,
                f"{one.checks_a_second:,.0f}",
                f"{one.allowed_a_second:,.0f}",
                f"{one.round_trips:.5f}",
                f"{one.redis_us:.2f}",
                "" if traffic == FREE else f"{one.overshoot / LIMIT.capacity:.1%}",
                "" if traffic == FREE else f"{one.bound / LIMIT.capacity:.1%}",
            ]
            for case, one in found.items()
            if case.traffic == traffic
        ]
        yield table([f"{PROCESSES} processes: {traffic}", *columns], rows)


def draw(record: Path, target: Path) -> None:
    """Draw round trips against overshoot, a point for each mode."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = {(row["traffic"], row["mode"]): row for row in json.loads(record.read_text())["fleets"]}
    colours = {"exact": "#1f5fa8", "lease": "#c8681d", "sync": "#3b7a57"}
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    labels: list[tuple[float, float]] = []
    for mode in MODES:
        trips, above = rows[AT_LIMIT, mode]["round_trips"], rows[ABOVE, mode]
        measured, bound = (100 * above[name] / LIMIT.capacity for name in ("overshoot", "bound"))
        colour = colours[mode.partition(" ")[0].strip(",")]
        axes.plot([trips, trips], [measured, bound], color=colour, linewidth=1, alpha=0.5)
        axes.plot(trips, bound, "_", color=colour, markersize=18, markeredgewidth=2)
        axes.plot(trips, measured, "o", color=colour, markersize=8)
        near = sum(y == bound and 0.4 < x / trips < 2.5 for x, y in labels)
        labels.append((trips, bound))
        axes.annotate(
            mode,
            (trips, max(bound, measured)),
            xytext=(0, 9 + 14 * near),
            textcoords="offset points",
            ha="center",
            color=colour,
        )
    axes.axhline(0, color="#777777", linewidth=1, linestyle="--", zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(1.6, 0.0008)  # fewer round trips to the right
    axes.set_xticks([1, 0.1, 0.01, 0.001], ["1", "1/10", "1/100", "1/1000"])
    axes.set_yscale("symlog", linthresh=1, linscale=0.6)
    axes.set_ylim(-0.35, 1_500)
    axes.set_yticks([0, 1, 10, 100, 400], ["0 %", "1 %", "10 %", "100 %", "400 %"])
    axes.minorticks_off()
    axes.set_xlabel("round trips per request, at 4,000 requests a second")
    axes.set_ylabel("allowed beyond the limit, of the limit")
    axes.set_title(f"{PROCESSES} processes, one hot key, limit 4,000/s", loc="left", fontsize=11)
    axes.plot([], [], "o", color="#777777", label="measured, in a flood after a quiet time")
    axes.plot([], [], "_", color="#777777", markersize=18, markeredgewidth=2, label="stated bound")
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leases", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 20 seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="the picture to draw")
    options = parser.parse_args()
    rounds, warm_s, seconds = (1, 0.3, 0.3) if options.quick else (3, 0.4, 0.5)
    cases = [Case(traffic, mode, warm_s, seconds) for traffic in TRAFFIC for mode in MODES]
    taken: dict[Case, list[Figures]] = {case: [] for case in cases}
    with processors_awake(), RedisServer() as server:
        for seed in range(rounds):
            for case in random.Random(seed).sample(cases, len(cases)):
                taken[case].append(measure(server, case))
    found = {case: combined(runs) for case, runs in taken.items()}
    goals = goals_of(found)
    print("\n\n".join([*tables(found), "\n".join(map(str, goals))]))
    fleets = [{"traffic": c.traffic, "mode": c.mode, **asdict(one)} for c, one in found.items()]
    write_record(options.json, {"rounds": rounds, "fleets": fleets}, goals)
    draw(options.json, options.picture)


if __name__ == "__main__":
    main()
