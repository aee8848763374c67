"""The picture: throughput by the number of concurrent callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.redis.redis_benchmark import PIPELINED, PLAIN
from benchmarks.redis.throughput import EVERYBODY

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.redis.throughput import Rates

LOOKS = {"ours": ("o-", 2.5), "bare": ("s--", 1.5), "peer": (".-", 1.0)}


def draw(path: Path, curve: dict[str, Rates], at_200: Rates) -> None:
    """A line for everybody, and level lines for what redis-benchmark reached."""
    mpl.use("Agg")
    figure, axes = plt.subplots(figsize=(9, 7.5), layout="constrained")
    callers = [int(label.replace(",", "")) for label in curve]
    for each in EVERYBODY:
        style, width = LOOKS[each.role]
        rates = [point[each.name] for point in curve.values()]
        axes.plot(callers, rates, style, linewidth=width, label=each.name)
    for way, style in ((PIPELINED, ":"), (PLAIN, "-.")):
        axes.axhline(at_200[way.name], linestyle=style, color="grey", label=way.name)
    axes.set(xscale="log", yscale="log", xlabel="concurrent callers", ylabel="checks a second")
    axes.set_xticks(callers, list(curve))
    axes.set_title("Checks a second of one async Python process, one Redis on loopback")
    axes.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
