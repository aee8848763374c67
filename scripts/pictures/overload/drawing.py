"""What the pictures of an overload have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure

    from headgate.engine.plan import Priority

__all__ = ["GREY", "plt", "save", "smoothed"]

GREY: Final = "#666666"
_AROUND: Final = 1
"""Seconds before and after that a rate is smoothed over."""

plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})


def smoothed(rate: Callable[..., float], until: int, *classes: Priority) -> list[float]:
    """The rate of *classes* in each second up to *until*, over three seconds each."""
    return [
        rate(max(second - _AROUND, 0), min(second + 1 + _AROUND, until), *classes)
        for second in range(until)
    ]


def save(figure: Figure, target: Path) -> None:
    """Write it down, the same bytes for the same picture."""
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})
    plt.close(figure)
