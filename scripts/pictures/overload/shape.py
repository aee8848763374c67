"""What a queue makes of bursts, beside a bucket: `python -m scripts.pictures.overload.shape`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

from headgate import AsyncRateLimiter
from headgate.overload import AsyncShaper
from headgate.testing.virtual_loop import VirtualLoop, run_virtually

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "shape.png"

RATE: Final = 10
QUEUE: Final = 15
SECONDS: Final = 10.0
SEED: Final = 9

_BLUE, _RED, _GREEN, _GREY = "#1f5fa8", "#c23b22", "#3b7a57", "#777777"


@dataclass
class Traffic:
    """When requests came, and what became of them; times in seconds."""

    came: list[float] = field(default_factory=list)
    passed: list[float] = field(default_factory=list)
    denied: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    depths: list[tuple[float, int]] = field(default_factory=list)


def arrivals(random: Random) -> list[float]:
    """A trickle, and a burst now and then: together about as many as the rate allows."""
    trickle = [random.uniform(0, SECONDS) for _ in range(25)]
    bursts = [(0.8, 12), (3.2, 24), (6.3, 9), (7.1, 13)]
    burst = [at + random.uniform(0, 0.25) for at, count in bursts for _ in range(count)]
    return sorted([*trickle, *burst])


async def simulate() -> Traffic:
    """The same requests before a queue and before a bucket."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    traffic = Traffic(came=arrivals(Random(SEED)))
    shaper = AsyncShaper(f"{RATE}/s", queue=QUEUE, clock=loop.time_ns)
    bucket = AsyncRateLimiter(f"{RATE}/s", clock=loop.time_ns)

    async def request() -> None:
        (traffic.passed if await bucket.hit("key") else traffic.denied).append(loop.time())
        place = await shaper.acquire("key")
        (traffic.left if place else traffic.refused).append(loop.time())

    tasks = []
    for step in range(round(SECONDS * 100)):
        now = step / 100
        await asyncio.sleep(now - loop.time())
        due = [at for at in traffic.came if now <= at < now + 0.01]
        tasks += [loop.create_task(request()) for _ in due]
        await asyncio.sleep(0)
        traffic.depths.append((now, await shaper.depth("key")))
    await asyncio.gather(*tasks)
    return traffic


def draw(traffic: Traffic, target: Path) -> None:
    """Arrivals above, then what a bucket lets through, then what a queue does."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, rows = plt.subplots(
        4,
        1,
        figsize=(9, 5.4),
        sharex=True,
        layout="constrained",
        gridspec_kw={"height_ratios": [1, 1, 1, 1.7]},
    )
    came, bucket, queue, depth = rows
    _ticks(came, traffic.came, [], _GREY, f"{len(traffic.came)} requests come as they like")
    _ticks(
        bucket,
        traffic.passed,
        traffic.denied,
        _GREEN,
        f"a token bucket of {RATE}/s: the same bursts go on, {len(traffic.denied)} are denied",
    )
    _ticks(
        queue,
        traffic.left,
        traffic.refused,
        _BLUE,
        f"a shaper of {RATE}/s, queue of {QUEUE}: they leave evenly, "
        f"{len(traffic.refused)} are refused",
    )
    times, depths = zip(*traffic.depths, strict=True)
    depth.fill_between(times, depths, step="post", color=_BLUE, alpha=0.25, linewidth=0)
    depth.step(times, depths, where="post", color=_BLUE, linewidth=1)
    depth.axhline(QUEUE, color=_RED, linewidth=1, linestyle="--")
    depth.text(SECONDS, QUEUE - 0.4, "full", color=_RED, ha="right", va="top")
    depth.set_ylim(0, QUEUE + 2)
    depth.set_xlim(0, SECONDS)
    depth.set_xlabel("seconds")
    depth.set_title("requests that wait in the shaper", loc="left", fontsize=10, color=_BLUE)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})
    plt.close(figure)


def _ticks(axes: Axes, passed: list[float], refused: list[float], colour: str, title: str) -> None:
    axes.vlines(passed, 0, 1, color=colour, linewidth=1.2)
    heights = [0.04 + 0.23 * (n % 5) for n in range(len(refused))]  # beside each other they overlap
    axes.plot(refused, heights, "x", color=_RED, markersize=5, markeredgewidth=1.6, zorder=3)
    axes.set_ylim(-0.1, 1.1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.set_title(title, loc="left", fontsize=10, color=colour)


if __name__ == "__main__":
    draw(run_virtually(simulate()), DRAWN)
