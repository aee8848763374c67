"""The report as an HTML page: one file without scripts or network access.

Its plots are SVG, drawn by matplotlib (extra `plots`) without any global state: the same plot gives
the same bytes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING, Final

from headgate.errors import not_installed
from headgate.simulator.report.findings import findings, has_dates
from headgate.terminal import counted, duration, printable
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

    from headgate.simulator.report.findings import Plot, RuleFindings, Table
    from headgate.simulator.results import Outcome

_MOST_RULES: Final = 30
"""The rules with a plot; others are in the table only."""
_ALLOWED: Final = "#2f6fb0"
_DENIED: Final = "#c2410c"
_INK, _FAINT, _GRID = "#1f2328", "#57606a", "#d8dee4"
_WIDTH, _TALL, _LOW = 7.6, 4.2, 2.2
"""Inches: the width of a plot, its height, and that of a plot of denials only."""
_FONT_SIZE: Final = 13


def html_report(outcomes: Sequence[Outcome], *, title: str) -> str:
    """The report on one policy, or on a change from the first to the second, as HTML.

    The same outcomes give the same page, byte for byte. Raises `OptionError` unless there are one
    or two.
    """
    found = findings(outcomes)
    left = len(found.rules) - _MOST_RULES
    more = f"<p>{counted(left, 'rule')} more denied something: see the table.</p>"
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    return _file("page.html").format(
        title=escape(printable(title)),
        style=_file("page.css"),
        conclusion=re.sub("`(.*?)`", r"<code>\1</code>", escape(found.conclusion)),
        facts="; ".join(f"{label}: {escape(text)}" for label, text in found.facts),
        notes=f'<div class="note">Notes:<ul>{notes}</ul></div>' if notes else "",
        tiles="".join(
            f"<div><dt>{name}</dt><dd><b>{figure}</b><small>{remark}</small></dd></div>"
            for name, figure, remark in found.figures
        ),
        plots=_plots(found.plots),
        timeline=_table(found.timeline),
        overview=_table(found.overview),
        rules="".join(map(_rule, found.rules[:_MOST_RULES])) + (more if left > 0 else ""),
    )


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _rule(rule: RuleFindings) -> str:
    more = "".join(map(_table, rule.more_tables))
    return (
        f'<article class="rule"><h3>{_code(rule.name)}</h3>'
        f'<p class="faint">{_code(rule.limit)}</p>{_plots(rule.plots)}'
        f"{''.join(map(_table, rule.tables))}"
        + (f"<details><summary>All keys</summary>{more}</details>" if more else "")
        + "</article>"
    )


def _plots(plots: Sequence[Plot]) -> str:
    """All *plots* side by side, to the same scale."""
    figures = []
    for plot in plots:
        data = b64encode(_svg(_draw(plot, plots)).encode()).decode()
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(plot.description)}">'
        caption = f"<figcaption>{escape(plot.title)}</figcaption>"
        figures.append(f"<figure>{caption}{image}</figure>")
    return f'<div class="pair">{"".join(figures)}</div>'


def _table(table: Table) -> str:
    """A table whose first column has names. A wide one scrolls by itself."""
    kinds = [' class="number"' if at in table.numbers else "" for at in range(len(table.header))]
    pairs = zip(kinds, table.header, strict=True)
    heads = "".join(f'<th scope="col"{kind}>{title}</th>' for kind, title in pairs)
    rows = []
    for first, *rest in table.rows:
        pairs = zip(kinds[1:], rest, strict=True)
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in pairs)
        rows.append(f'<tr><th scope="row">{_code(first)}</th>{cells}</tr>')
    title = escape(table.title or "all rules")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{title}"><table>'
        f"<caption>{title}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


# Plots.


def _draw(plot: Plot, top: Sequence[Plot]) -> Figure:
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
        axes[0].stairs(both, edges, baseline=plot.allowed, fill=True, color=_DENIED)
        axes[0].stairs(plot.allowed, edges, fill=True, color=_ALLOWED)
    if plot.verb or denied:
        _style(axes[-1], plot, f"{plot.verb or 'denied'} {step}", denied)
        axes[-1].stairs(plot.denied, _edges(plot), fill=True, color=_DENIED)
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


def _svg(figure: Figure) -> str:
    """*figure* as an SVG document."""
    written = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "headgate"}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return written.getvalue()
