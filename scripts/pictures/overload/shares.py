"""The slots that two groups of callers hold, drawn as `docs/img/shares.png`.

Two parts of the callers share ten slots, six of which are guaranteed to `paid`. `free` always wants
as many as it can get. `paid` comes, goes and comes back. Each holds a slot for about a second. On
virtual time, through the real limiter.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate import AsyncRateLimiter, Concurrency
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "shares.png"
SLOTS: Final = 10
PAID: Final = 6
SECONDS: Final = 60
BUSY: Final = ((10, 25), (40, 55))
"""When there is demand of `paid`."""
EVERY: Final = 0.1
"""Seconds after which somebody asks again."""
_COLOURS: Final = {"paid": "#1f5fa8", "free": "#c8681d"}

Course = dict[str, list[int]]


async def watched(limit: Concurrency) -> Course:
    """How many slots each part has, every tenth of a second."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    limiter = AsyncRateLimiter(limit, clock=loop.time_ns)
    held = dict.fromkeys(_COLOURS, 0)
    chance = random.Random(7)

    async def work(part: str) -> None:
        async with limiter.slot("backend", part if part == "paid" else None) as slot:
            if slot:
                held[part] += 1
                await asyncio.sleep(chance.uniform(0.5, 1.5))
                held[part] -= 1

    course: Course = {part: [] for part in _COLOURS}
    tasks: set[asyncio.Task[None]] = set()
    for step in range(round(SECONDS / EVERY)):
        now = step * EVERY
        wanting = ["free"] * 3
        if any(begin <= now < end for begin, end in BUSY):
            wanting += ["paid"] * 2
        for part in wanting:
            task = asyncio.ensure_future(work(part))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(EVERY / 10)  # they have asked by then
        for part, line in course.items():
            line.append(held[part])
        await asyncio.sleep(EVERY * 9 / 10)
    await asyncio.gather(*tasks)
    return course


def draw(target: Path) -> None:
    """Side by side: guarantees that are lent, and guarantees that are kept."""
    shares = (("paid", PAID),)
    lent = run_virtually(watched(Concurrency(SLOTS, 30, shares=shares)))
    kept = run_virtually(watched(Concurrency(SLOTS, 30, shares=shares, lends=False)))
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    _course(axes[0], lent, "lent while it lies idle (lends: true)")
    _course(axes[1], kept, "kept free (lends: false)")
    axes[0].set_ylabel("slots in use")
    figure.suptitle(f"{SLOTS} slots, {PAID} of them guaranteed to “paid”; “free” takes all it gets")
    save(figure, target)


def _course(axes: Axes, course: Course, title: str) -> None:
    times = [step * EVERY for step in range(len(course["paid"]))]
    paid, free = course["paid"], course["free"]
    axes.stackplot(times, paid, free, colors=[_COLOURS["paid"], _COLOURS["free"]], alpha=0.85)
    axes.axhline(PAID, color="white", linewidth=1.2, linestyle="--")
    for begin, end in BUSY:
        axes.annotate(
            "", (begin, SLOTS + 0.5), (end, SLOTS + 0.5), arrowprops={"arrowstyle": "<->"}
        )
        middle = (begin + end) / 2
        axes.text(middle, SLOTS + 0.7, "paid is busy", ha="center", color=GREY, fontsize=9)
    axes.text(32.5, 1.5, "free", ha="center", color="white")
    for begin, end in BUSY:
        axes.text((begin + end) / 2, 2.5, "paid", ha="center", color="white")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("seconds")
    axes.set_xlim(0, SECONDS)
    axes.set_ylim(0, SLOTS + 1.6)


if __name__ == "__main__":
    draw(DRAWN)
