"""`python -m benchmarks.gateway_accuracy`: what two gateways let through of one limit.

Two gateways on one Redis, and a limit of 100 a second for a caller who sends 200 a second to both,
and then to the first one only. The upstream records when each request arrived. The picture
docs/img/gateway.png is drawn from it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.measure import Goal, table, write_record
from benchmarks.servers import Gateway
from tests.support.counting_upstream import counting_upstream
from tests.support.servers import RedisServer
from tests.support.servers.process import find

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "gateway_accuracy.json"
PICTURE: Final = ROOT / "docs" / "img" / "gateway.png"
LIMIT: Final = 100
"""A second, and at once: the capacity is the same."""
OFFERED: Final = 200
GATEWAYS: Final = 2
CLIENTS: Final = 4
SETTLED: Final = 2.0
"""Seconds after which the first burst is over."""
MOST_BEYOND: Final = 0.05
"""Of the limit, in any time, beyond what is promised: clocks and queues blur this much."""
LEAST: Final = 0.9
"""Of the limit, that two equally loaded gateways let through together."""
COLOURS: Final = {"exact": "#1f5fa8", "quota": "#c8681d", "local": "#3b7a57"}
RULES: Final = f"""
version: 1
identity: {{api_key: {{header: x-api-key}}}}
rules:
  - {{id: per-key, match: {{endpoint: "/api/**"}}, key_by: api_key, limit: {LIMIT}/s}}
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was let through: requests in each second; the mean, the least and the most of any second
    at both gateways and at one, as parts of the limit.

    *beyond* is the most in any time t beyond C + R t, as a part of C, once it has settled;
    *at_first* the same from the beginning: before a quota is assigned each gateway enforces the
    whole limit.
    """

    a_second: tuple[int, ...]
    both: tuple[float, float, float]
    one: tuple[float, float, float]
    beyond: float
    at_first: float


def measure(decide: str, both_s: float, moving_s: float, one_s: float) -> Seen:
    """Send to both gateways for *both_s*, then to one for *one_s*, of which *moving_s* are not
    counted: shares take time to move."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        redis = stack.enter_context(RedisServer())
        upstream = stack.enter_context(counting_upstream())
        flags = ("--decide", decide, "--store", redis.url, "--gateway-count", str(GATEWAYS))
        gateways = [
            stack.enter_context(Gateway(root / f"g{n}", upstream.url, RULES, *flags))
            for n in range(GATEWAYS)
        ]
        begun = time.time()
        _send([gateway.address for gateway in gateways], both_s)
        _send([gateways[0].address], one_s)
        times = [when - begun for when in upstream.seen("/api/")]
    a_second = [0] * (int(times[-1]) + 1)
    for when in times:
        a_second[int(when)] += 1
    return Seen(
        tuple(a_second),
        _parts(a_second[3 : int(both_s)]),
        _parts(a_second[int(both_s + moving_s) : int(both_s + one_s)]),
        round(_beyond([when for when in times if when >= SETTLED]), 3),
        round(_beyond(times), 3),
    )


def _send(addresses: Sequence[str], seconds: float) -> None:
    """Offer requests to each of *addresses* at the rate, whatever the replies are."""
    call = [find("h2load"), "--h1", f"-c{CLIENTS}", f"-n{int(OFFERED * seconds)}"]
    call += [f"--rps={OFFERED / CLIENTS:g}", "-H", "x-api-key: measured"]
    running = [
        subprocess.Popen(  # noqa: S603 - the arguments are our own
            [*call, f"http://{address}/api/"], stdout=subprocess.DEVNULL
        )
        for address in addresses
    ]
    for process in running:
        assert process.wait(seconds + 60) == 0


def _parts(counts: Sequence[int]) -> tuple[float, float, float]:
    parts = [count / LIMIT for count in counts]
    return round(statistics.fmean(parts), 3), min(parts), max(parts)


def _beyond(times: Sequence[float]) -> float:
    """The most of *times* in any interval beyond the capacity and the refill in it."""
    lowest = most = float("-inf")
    for place, when in enumerate(times):
        # The requests from one time on: one more than the places between, less the refill.
        level = place - LIMIT * when
        lowest = min(lowest, level) if place else level
        most = max(most, level - lowest + 1)
    return max(0.0, most - LIMIT) / LIMIT


def goals_of(found: dict[str, Seen]) -> list[Goal]:
    goals = []
    for name, seen in found.items():
        what = f"{name}: most in any time beyond the limit, of the limit"
        goals.append(Goal(what, seen.beyond, MOST_BEYOND))
        if name != "quota":
            goals.append(Goal(f"{what}, at first", seen.at_first, MOST_BEYOND))
        what = f"{name}: let through at both gateways, of the limit"
        goals.append(Goal(what, seen.both[0], LEAST, at_least=True))
    return goals


def draw(found: dict[str, Seen], switch: float, target: Path) -> None:
    """Draw what was let through in each second."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    axes.axhline(LIMIT, color="#777777", linewidth=1, linestyle="--", zorder=0)
    axes.axvline(switch, color="#777777", linewidth=1, linestyle=":", zorder=0)
    for name, seen in found.items():
        counts = seen.a_second[:-1]  # the last second is not a whole one
        axes.plot(range(len(counts)), counts, color=COLOURS[name], linewidth=1.8, label=name)
    top = axes.get_ylim()[1]
    axes.text(switch + 0.2, top * 0.97, "one gateway\nfrom here on", va="top", color="#777777")
    axes.set(ylim=(0, top), xlabel="seconds", ylabel="let through in each second")
    title = f"{LIMIT}/s over two gateways, {OFFERED}/s offered to each"
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(loc="upper right", frameon=False)
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway_accuracy", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="the picture to draw")
    options = parser.parse_args()
    spans = (6.0, 8.0, 12.0) if options.quick else (15.0, 25.0, 35.0)
    found = {decide: measure(decide, *spans) for decide in COLOURS}
    columns = [f"let through, of {LIMIT}/s", "both gateways", "one gateway", "beyond", "at first"]
    rows = [
        [
            name,
            "{:.2f} ({:.2f} to {:.2f})".format(*seen.both),
            "{:.2f} ({:.2f} to {:.2f})".format(*seen.one),
            f"{seen.beyond:.1%}",
            f"{seen.at_first:.1%}",
        ]
        for name, seen in found.items()
    ]
    goals = goals_of(found)
    print(table(columns, rows), "\n".join(map(str, goals)), sep="\n\n")
    record = {"limit_a_second": LIMIT, "offered_a_second": OFFERED, "switch_at": spans[0]}
    write_record(options.json, {**record, "seen": found}, goals)
    draw(found, spans[0], options.picture)


if __name__ == "__main__":
    main()
