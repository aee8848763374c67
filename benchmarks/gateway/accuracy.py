"""`python -m benchmarks.gateway.accuracy`: what two gateways let through of one limit.

Two Envoys, one service, one Redis, and a limit of 100 a second for a caller who sends 200 a second
to both gateways, and then to the first one only. The upstream notes when each request came.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.gateway.picture import DRAWN, draw_if_complete
from benchmarks.gateway.servers import DecisionService, Gateway
from benchmarks.gateway.ways import EXACT, LOCAL, QUOTA, policy
from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.report import goal_lines, table, write_json
from tests.support.counting_upstream import counting_upstream
from tests.support.servers import RedisServer
from tests.support.servers.process import find

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.gateway.ways import Way
    from tests.support.counting_upstream import Upstream

RESULTS: Final = Path(__file__).parents[1] / "results" / "gateway_accuracy.json"
LIMIT: Final = 100
"""A second, and at once: the capacity is the same."""

OFFERED: Final = 200
GATEWAYS: Final = 2
_CLIENTS: Final = 4
SETTLED: Final = 2.0
"""Seconds after which the first moments are over, and with them the burst."""

MOST_BEYOND: Final = 0.05
"""Of the limit, in any time, beyond what was promised: what clocks and queues blur."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Some seconds of even traffic: *begin* and *end* of what counts, seconds from the start."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What a way let through: requests in each second, and of the limit in each phase (the mean,
    and the least and the most of any of its seconds).

    *beyond* is the most in any time t beyond C + R t, as a part of C, once it has settled;
    *at_first* the same from the beginning on: before a quota is assigned each gateway enforces the
    whole limit.
    """

    a_second: tuple[int, ...]
    phases: dict[str, tuple[float, float, float]]
    beyond: float
    at_first: float


def main() -> None:
    options = _parser().parse_args()
    both, moving, one = (5.0, 8.0, 12.0) if options.quick else (15.0, 25.0, 35.0)
    phases = (
        Phase("both gateways", 3.0, both),
        Phase("one gateway", both + moving, both + one),  # shares take their time to move
    )
    found = {way.name: _seen(way, both, one, phases) for way in (EXACT, QUOTA, LOCAL)}
    print(_table(found, phases), end="\n\n")
    goals = [*_goals(found)]
    print(goal_lines(goals))
    record: dict[str, object] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "limit_a_second": LIMIT,
        "offered_a_second": OFFERED,
        "gateways": GATEWAYS,
        "switch_at": both,
        "phases": phases,
        "seen": found,
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }
    write_json(options.json, record)
    draw_if_complete(options.json, options.picture)


def _goals(found: dict[str, Seen]) -> Iterator[Goal]:
    for name, seen in found.items():
        what = f"{name}: most in any time beyond the limit, as a part of it"
        yield Goal(what, seen.beyond, MOST_BEYOND, at_least=False)
        if name != QUOTA.name:
            yield Goal(f"{what}, at first", seen.at_first, MOST_BEYOND, at_least=False)


def _seen(way: Way, both: float, one: float, phases: Sequence[Phase]) -> Seen:
    """*both* seconds of traffic at both gateways, then *one* at the first of them."""
    text = policy("one rule", f"{LIMIT}/s")
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        redis = stack.enter_context(RedisServer())
        upstream = stack.enter_context(counting_upstream())
        service = DecisionService(root / "service", text, "--store", redis.url)
        stack.enter_context(service)
        port = int(upstream.url.rpartition(":")[2])
        gateways = [
            Gateway(root / f"g{n}", way, port, service, gateway_count=GATEWAYS)
            for n in range(GATEWAYS)
        ]
        for gateway in gateways:
            stack.enter_context(gateway)
            gateway.start(text)
        begun = time.time()
        _send(gateways, both)
        _send(gateways[:1], one)
        return _figures(upstream, begun, phases)


def _send(gateways: Sequence[Gateway], seconds: float) -> None:
    """So many requests a second to each of *gateways* as are offered, whatever is answered."""
    call = [find("h2load"), "--h1", f"-c{_CLIENTS}", f"-n{int(OFFERED * seconds)}"]
    call += [f"--rps={OFFERED / _CLIENTS:g}", "-H", "x-api-key: measured"]
    running = [
        subprocess.Popen(  # noqa: S603 - the arguments are our own
            [*call, f"http://127.0.0.1:{gateway.address}/api/"], stdout=subprocess.DEVNULL
        )
        for gateway in gateways
    ]
    for process in running:
        assert process.wait(seconds + 60) == 0


def _figures(upstream: Upstream, begun: float, phases: Sequence[Phase]) -> Seen:
    times = [when - begun for when in upstream.seen("/api/")]
    a_second = [0] * (int(times[-1]) + 1)
    for when in times:
        a_second[int(when)] += 1
    in_phases = {}
    for phase in phases:
        parts = [count / LIMIT for count in a_second[int(phase.begin) : int(phase.end)]]
        in_phases[phase.name] = (round(statistics.fmean(parts), 3), min(parts), max(parts))
    settled = [when for when in times if when >= SETTLED]
    return Seen(tuple(a_second), in_phases, round(_beyond(settled), 3), round(_beyond(times), 3))


def _beyond(times: Sequence[float]) -> float:
    """The most of *times* in any interval beyond the capacity and what came back in it."""
    lowest = most = float("-inf")
    for place, when in enumerate(times):
        # Those from one time on: one more than the places between, less what was refilled.
        level = place - LIMIT * when
        lowest = min(lowest, level) if place else level
        most = max(most, level - lowest + 1)
    return max(0.0, most - LIMIT) / LIMIT


def _table(found: dict[str, Seen], phases: Sequence[Phase]) -> str:
    headings = [
        f"let through, of {LIMIT}/s",
        *(f"at {phase.name}" for phase in phases),
        "beyond it",
        "at first",
    ]
    rows = [
        [
            name,
            *("{:.2f} ({:.2f} to {:.2f})".format(*seen.phases[phase.name]) for phase in phases),
            f"{seen.beyond:.1%}",
            f"{seen.at_first:.1%}",
        ]
        for name, seen in found.items()
    ]
    return table(headings, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway.accuracy", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--picture", type=Path, default=DRAWN, help="the picture to draw")
    return parser


if __name__ == "__main__":
    main()
