"""Plots of a report by matplotlib, as SVG. Needs the extra `plots`.

No global state of matplotlib is used, and the same plot gives the same bytes.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Final

from headgate.errors import not_installed
from headgate.simulator.report.findings import has_dates
from headgate.terminal import duration
from headgate.units import DAY, SECOND

try:
    import matplotlib as mpl
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise not_installed("plots", error) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from headgate.simulator.report.findings import Plot

ALLOWED: Final = "#2f6fb0"
DENIED: Final = "#c2410c"
_INK, _FAINT, _GRID = "#1f2328", "#57606a", "#d8dee4"
_WIDTH, _TALL, _LOW = 7.6, 4.2, 2.2
"""Inches."""
_FONT_SIZE: Final = 13


def draw(plot: Plot, top: Sequence[Plot]) -> Figure:
    """Draw *plot* to the scale of all plots in *top*, so that they can be compared.

    Denials are drawn on their own scale, below all requests unless the plot is of denials only.
    """
    denied = max(max(one.denied) for one in top)
    requests = max(max(map(sum, zip(one.allowed, one.denied, strict=True))) for one in top)
    is_single = plot.verb is not None or not denied
    figure = Figure((_WIDTH, _LOW if plot.verb else _TALL), layout="constrained")
    axes = figure.subplots(1 if is_single else 2, squeeze=False, sharex=True)[:, 0]
    step = f"per {duration(plot.step_ns)}"
    if plot.verb is None:
        _style(axes[0], plot, f"requests {step}", requests)
        edges = _edges(plot)
        both = [sum(pair) for pair in zip(plot.allowed, plot.denied, strict=True)]
        axes[0].stairs(both, edges, baseline=plot.allowed, fill=True, color=DENIED)
        axes[0].stairs(plot.allowed, edges, fill=True, color=ALLOWED)
    if plot.verb or denied:
        _style(axes[-1], plot, f"{plot.verb or 'denied'} {step}", denied)
        axes[-1].stairs(plot.denied, _edges(plot), fill=True, color=DENIED)
    return figure


def _edges(plot: Plot) -> list[float]:
    """The begin of each step and the end of the last: days since the epoch, or seconds."""
    origin_ns, unit_ns = (0, DAY) if has_dates(plot.began_ns) else (plot.began_ns, SECOND)
    began_ns = plot.began_ns - origin_ns
    return [(began_ns + n * plot.step_ns) / unit_ns for n in range(len(plot.allowed) + 1)]


def _style(axes: Axes, plot: Plot, title: str, highest: int) -> None:
    axes.set_title(title, loc="left", fontsize=_FONT_SIZE, color=_INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.grid(axis="y", color=_GRID)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=_FAINT, labelsize=_FONT_SIZE)
    edges = _edges(plot)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, max(highest, 1) * 1.04)
    axes.locator_params(axis="y", nbins=4, integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    if has_dates(plot.began_ns):
        locator = AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        labels = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(labels)
    else:
        axes.xaxis.set_major_formatter("{x:g} s")


def svg(figure: Figure) -> str:
    """*figure* as an SVG document."""
    written = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "headgate"}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return written.getvalue()
