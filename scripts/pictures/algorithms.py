"""Draw what each algorithm does to the same traffic: docs/img/algorithms.png.

The traffic is the same for all: bursts around the turn of a minute, then a steady overload, on a
clock that is moved by hand. The limit is 100 a minute each time.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from headgate import RateLimiter
from headgate.testing import ManualClock

mpl.use("Agg")
from matplotlib import pyplot as plt

LIMITS = {
    "fixed_window": "twice the limit can pass around the minute",
    "sliding_window_log": "exact: never more than 100 in any 60 s",
    "sliding_window_counter": "an estimate: takes the last minute to have been even",
    "sliding_window_counter subwindows 6": "a finer estimate",
    "token_bucket": "a burst, then a steady flow",
}
TARGET = Path(__file__).parents[2] / "docs" / "img" / "algorithms.png"


def requests() -> list[float]:
    """When the requests come, in seconds: bursts at 0:50 and 1:00, then 4 a second."""
    bursts = [start + n / 40 for start in (50.0, 60.0) for n in range(100)]
    steady = [75 + n / 4 for n in range(4 * 105)]
    return bursts + steady


def admitted(limit: str) -> list[float]:
    clock = ManualClock()
    limiter = RateLimiter(limit, clock=clock)
    times = []
    for time in requests():
        clock.set(time)
        if limiter.hit("user:42"):
            times.append(time)
    return times


def main() -> None:
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(len(LIMITS), 1, figsize=(9, 8.6), sharex=True, sharey=True)
    bins = [float(second) for second in range(48, 181, 2)]
    for axis, (name, remark) in zip(axes, LIMITS.items(), strict=True):
        passed = admitted(f"100/minute {name}")
        axis.hist(requests(), bins=bins, color="#e3b5a4", label="asked")
        axis.hist(passed, bins=bins, color="#3b7a57", label="let through")
        worst = max(sum(start <= t < start + 60 for t in passed) for start in passed)
        axis.set_title(f"100/minute {name}: {remark}", loc="left", fontsize=10)
        axis.text(125, 45, f"most in any 60 s: {worst}")
        for minute in (60, 120, 180):
            axis.axvline(minute, color="#999999", linewidth=0.8, linestyle=":")
        axis.set_ylabel("per 2 s")
    axes[0].legend(loc="upper center", frameon=False, ncol=2)
    axes[-1].set_xlabel("seconds (dotted: the minute)")
    figure.tight_layout()
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
