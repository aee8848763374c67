"""Shares of a backend with and without fair queueing: `python -m scripts.pictures.overload.fair`.

Three tenants of weights 2, 1 and 1 ask for more than there is. One of them is greedy: it asks for
three times of what there is, all the time. One goes idle for a while, and comes back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from headgate.overload import AsyncFairGate
from headgate.testing.virtual_loop import run_virtually
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "fair.png"

SECONDS: Final = 30
SLOTS: Final = 10
HELD: Final = 0.1
CAPACITY: Final = round(SLOTS / HELD)
IDLE: Final = (10, 20)
SEED: Final = 9
WAITING: Final = 20


@dataclass(frozen=True)
class Tenant:
    """Somebody who asks for *rate* places a second."""

    name: str
    weight: int
    rate: int
    colour: str
    is_away: bool = False
    """Whether it is idle for a while."""

    def asks_at(self, time: float) -> bool:
        return not (self.is_away and IDLE[0] <= time < IDLE[1])


TENANTS: Final = (
    Tenant("big", 2, 90, "#1f5fa8"),
    Tenant("away", 1, 60, "#3b7a57", is_away=True),
    Tenant("greedy", 1, 3 * CAPACITY, "#c8681d"),
)


@dataclass
class Run:
    """How many places each tenant had in each second."""

    places: dict[str, list[int]] = field(
        default_factory=lambda: {tenant.name: [0] * SECONDS for tenant in TENANTS}
    )

    def rates(self, tenant: Tenant) -> list[float]:
        """Turns a second, over three seconds each; where it is idle, not beyond."""
        found = self.places[tenant.name]
        edges = (0, *IDLE, SECONDS)
        rates = []
        for second in range(SECONDS):
            begin = max(edge for edge in edges if edge <= second)
            end = min(edge for edge in edges if edge > second)
            around = found[max(second - 1, begin) : min(second + 2, end)]
            rates.append(sum(around) / len(around))
        return rates


async def simulate(*, is_fair: bool) -> Run:
    """The same requests, in fair order or first come, first served."""
    run = Run()
    gate = AsyncFairGate(
        slots=SLOTS,
        queue=WAITING if is_fair else WAITING * len(TENANTS),
        weights={tenant.name: tenant.weight for tenant in TENANTS},
    )
    loop = asyncio.get_running_loop()

    async def request(tenant: Tenant) -> None:
        async with gate.place(tenant.name if is_fair else "all") as place:
            if place and loop.time() < SECONDS:
                run.places[tenant.name][int(loop.time())] += 1
                await asyncio.sleep(HELD)

    async def come(tenant: Tenant, random: Random) -> None:
        tasks = set()
        while loop.time() < SECONDS:
            await asyncio.sleep(random.expovariate(tenant.rate))
            if tenant.asks_at(loop.time()):
                task = loop.create_task(request(tenant))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    await asyncio.gather(*(come(tenant, Random(f"{SEED} {tenant.name}")) for tenant in TENANTS))
    return run


def draw(alike: Run, fair: Run, target: Path) -> None:
    """Side by side: first come, first served; and in fair order."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    _stack(left, alike, "first come, first served: it goes by who asks most")
    _stack(right, fair, "a fair gate: it goes by weight, and nothing is left unused")
    left.set_ylabel(f"places a second, of {CAPACITY} that there are")
    figure.suptitle(
        "three tenants who together ask for more than four times of what there is", fontsize=11
    )
    save(figure, target)


def _stack(axes: Axes, run: Run, title: str) -> None:
    seconds = list(range(SECONDS))
    lows = [0.0] * SECONDS
    for tenant in TENANTS:
        rates = run.rates(tenant)
        highs = [low + rate for low, rate in zip(lows, rates, strict=True)]
        axes.fill_between(
            [*seconds, SECONDS],
            [*lows, lows[-1]],
            [*highs, highs[-1]],
            step="post",
            color=tenant.colour,
            alpha=0.85,
            linewidth=0,
        )
        for second in (5, 15, 25):
            _label(axes, tenant, second, lows[second], rates)
        lows = highs
    axes.axvspan(*IDLE, color=GREY, alpha=0.12, linewidth=0)
    axes.text(sum(IDLE) / 2, CAPACITY * 1.04, "'away' is idle", ha="center", color=GREY)
    axes.set_xlim(0, SECONDS)
    axes.set_ylim(0, CAPACITY * 1.14)
    axes.set_xlabel("seconds")
    axes.set_title(title, loc="left", fontsize=10)


def _label(axes: Axes, tenant: Tenant, second: int, low: float, rates: list[float]) -> None:
    """How much it gets around that *second*, in the middle of its band."""
    settled = rates[second - 2 : second + 5]
    mean = sum(settled) / len(settled)
    if mean < 5:  # too thin to write in
        return
    name = f"{tenant.name}, weight {tenant.weight}: " if second == 5 else ""
    axes.text(second, low + mean / 2, f"{name}{mean:.0f}", ha="center", va="center", color="white")


if __name__ == "__main__":
    draw(run_virtually(simulate(is_fair=False)), run_virtually(simulate(is_fair=True)), DRAWN)
