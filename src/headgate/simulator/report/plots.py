"""The plots of a report, by matplotlib: admitted and refused over time. Needs the extra `plots`.

A plot knows its colours by what they mean; `ON_PAPER` are those of pictures, `ON_A_PAGE` stand for
the colours of a page (`svg`), which change when it is dark. No global state of matplotlib is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from headgate.simulator.report.scales import rates, time_marks, unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from headgate.simulator.report.scales import Bars


DOTS: Final = 72
"""To the inch, so that a size is in points, and those are the units of an SVG."""
_MARK_WIDTH: Final = 78
_NUMBERS: Final = 38
_TIMES: Final = 24
_RIGHT: Final = 28
_HEADING: Final = 24
_SIDE: Final = 10
"""The room that things beside the axes need, in points."""
_UPPER_SHARE: Final = 0.6
_HEADROOM: Final = 1.04
_LARGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a plot, by what they mean; *background* None is see-through."""

    ink: str
    faint: str
    grid: str
    admitted: str
    refused: str
    background: str | None


ON_PAPER: Final = Palette("#1f2328", "#57606a", "#d8dee4", "#2f6fb0", "#c2410c", "#ffffff")
ON_A_PAGE: Final = Palette("#010101", "#010102", "#010103", "#010104", "#010105", None)


@dataclass(frozen=True, slots=True)
class Frame:
    """How large a plot is, in points, and how high its scales go, so that two can be compared.

    *highest* are the largest numbers in a step: of requests, and of refusals.
    """

    width: int
    height: int
    highest: tuple[int, int]
    palette: Palette
    font_size: float = 12
    title: str | None = None

    @property
    def left(self) -> int:
        """Where the axes begin: right of their numbers."""
        return _NUMBERS + (_SIDE if self.palette.background else 0)

    @property
    def heading(self) -> int:
        """How far down the first axes begin."""
        return _HEADING + (_HEADING + _SIDE if self.title else 0)

    @property
    def inner_height(self) -> int:
        """What is left for axes, and for the headings of all but the first."""
        return self.height - self.heading - _TIMES


def frame_for(
    all_bars: Sequence[Bars], *, width: int, height: int, palette: Palette, title: str | None = None
) -> Frame:
    """A frame in which each of *all_bars* fits, with the same scales."""
    asked = max(max(map(sum, zip(one.allowed, one.denied, strict=True))) for one in all_bars)
    refused = max(max(one.denied) for one in all_bars)
    return Frame(width, height, (asked, refused), palette, title=title)


def course(bars: Bars, frame: Frame) -> Figure:
    """All requests over time, the refused ones on top; below, the refused ones by themselves, if
    there are any."""
    figure = _figure(frame)
    if not frame.highest[1]:
        _admitted(_axes(figure, frame, 0, frame.inner_height), bars, frame)
        return figure
    room = frame.inner_height - _HEADING
    above = _axes(figure, frame, 0, room * _UPPER_SHARE)
    below = _axes(figure, frame, room * _UPPER_SHARE + _HEADING, room * (1 - _UPPER_SHARE))
    _admitted(above, bars, frame)
    _refused(below, bars, frame, "refused only, on a scale of their own")
    above.tick_params(axis="x", labelbottom=False)
    return figure


def refusals(bars: Bars, frame: Frame, word: str) -> Figure:
    """What was refused over time; *word* says that it was."""
    figure = _figure(frame)
    _refused(_axes(figure, frame, 0, frame.inner_height), bars, frame, word)
    return figure


def _figure(frame: Frame) -> Figure:
    figure = Figure(
        figsize=(frame.width / DOTS, frame.height / DOTS),
        dpi=DOTS,
        facecolor=frame.palette.background or "none",
    )
    if frame.title:
        figure.text(
            _SIDE / frame.width,
            1 - _SIDE / frame.height,
            frame.title,
            va="top",
            fontsize=frame.font_size + 1,
            color=frame.palette.ink,
            parse_math=False,
        )
    return figure


def _axes(figure: Figure, frame: Frame, below: float, height: float) -> Axes:
    """Axes of *height*, so far *below* the first line of the frame; both in points.

    Placed by hand: to measure all texts first, as layouts do, takes longer than to draw them.
    """
    bottom = frame.height - frame.heading - below - height
    inner = frame.width - frame.left - _RIGHT
    return figure.add_axes(
        (
            frame.left / frame.width,
            bottom / frame.height,
            inner / frame.width,
            height / frame.height,
        )
    )


def _admitted(axes: Axes, bars: Bars, frame: Frame) -> None:
    palette = frame.palette
    unit_ns, words = unit_of(frame.highest[0], bars.step_ns)
    admitted = rates(bars.allowed, bars.step_ns, unit_ns)
    together = [sum(pair) for pair in zip(bars.allowed, bars.denied, strict=True)]
    asked = rates(together, bars.step_ns, unit_ns)
    _stairs(axes, bars, asked, palette.refused, baseline=admitted)
    _stairs(axes, bars, admitted, palette.admitted)
    _style(axes, bars, frame, frame.highest[0] * unit_ns / bars.step_ns)
    title: Any = axes.set_title(
        f"requests {words}", loc="left", fontsize=frame.font_size, color=palette.ink
    )
    if palette.background:  # a page has a legend of its own, and a font that is not known here
        for text, colour in (("  admitted", palette.admitted), ("  refused", palette.refused)):
            title = _beside(axes, title, text, colour, frame)


def _beside(axes: Axes, before: Any, text: str, colour: str, frame: Frame) -> Any:
    """*text* right after what was written *before*."""
    return axes.annotate(
        text,
        (1, 0),
        xycoords=before,
        va="bottom",
        fontsize=frame.font_size,
        color=colour,
        weight="bold",
        annotation_clip=False,
    )


def _refused(axes: Axes, bars: Bars, frame: Frame, title: str) -> None:
    unit_ns, words = unit_of(frame.highest[1], bars.step_ns)
    _stairs(axes, bars, rates(bars.denied, bars.step_ns, unit_ns), frame.palette.refused)
    _style(axes, bars, frame, frame.highest[1] * unit_ns / bars.step_ns)
    axes.set_title(
        f"{title}, {words}", loc="left", fontsize=frame.font_size, color=frame.palette.ink
    )


def _stairs(
    axes: Axes, bars: Bars, heights: list[float], colour: str, baseline: list[float] | None = None
) -> None:
    axes.stairs(
        heights,
        [edge - bars.began_ns for edge in bars.edges_ns],  # a float is too coarse for an epoch
        baseline=baseline or 0,
        fill=True,
        color=colour,
        linewidth=0,
        clip_on=False,
    )


def _style(axes: Axes, bars: Bars, frame: Frame, highest: float) -> None:
    palette = frame.palette
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette.faint)
    axes.set_facecolor("none")
    axes.grid(axis="y", color=palette.grid, linewidth=0.8, clip_on=False)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", pad=6)
    axes.tick_params(length=0, labelcolor=palette.faint, labelsize=frame.font_size - 1)
    axes.set_xlim(0, bars.ended_ns - bars.began_ns)
    axes.set_ylim(0, max(highest, 1) * _HEADROOM)
    marks = time_marks(bars.began_ns, bars.ended_ns, most=max(2, frame.width // _MARK_WIDTH))
    axes.set_xticks([at - bars.began_ns for at, _ in marks], [text for _, text in marks])
    axes.locator_params(axis="y", nbins=4, integer=True)
    axes.yaxis.set_major_formatter(_plain)


def _plain(number: float, _place: float | None = None) -> str:
    if number >= _LARGE**2:
        return f"{number / 1e6:,.0f} M"
    return f"{number / 1e3:,.0f} k" if number >= _LARGE else f"{number:,.0f}"


# A plot as SVG inside a page: its text stays text, its colours are the page's.
#
# What matplotlib writes is a document of its own. Made part of a page it must not bring a style for
# all elements, ids that collide with those of the next plot, or fonts that are not there; and the
# same plot must give the same bytes.


_DEFINITIONS: Final = re.compile(r"<(defs|metadata)>.*?</\1>", re.DOTALL)
_ID: Final = re.compile(r' id="[^"]*"')
_FONT: Final = re.compile(r" ?font-family: [^;\"]*;")
_TURN: Final = re.compile(r' transform="rotate\(-0 [^"]*"')
_EMPTY: Final = re.compile(r"<g/>|<g>\s*</g>|<path d=\"[^\"]*\" style=\"fill: none\"/>")
_NUMBER: Final = re.compile(r"\d+\.\d{2,}")
_SPACE: Final = re.compile(r"\s*\n\s*")
_COLOURS: Final = {
    ON_A_PAGE.ink: "var(--ink)",
    ON_A_PAGE.faint: "var(--faint)",
    ON_A_PAGE.grid: "var(--grid)",
    ON_A_PAGE.admitted: "var(--admitted)",
    ON_A_PAGE.refused: "var(--refused)",
}
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


def inline_svg(figure: Figure, *, alternative: str) -> str:
    """*figure* as an element of a page; *alternative* says in words what it shows."""
    written = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "headgate"}):
        figure.savefig(written, format="svg", metadata=_NO_METADATA)
    inside = written.getvalue().partition("<svg")[2].partition(">")[2]
    width, height = (round(inches * DOTS) for inches in figure.get_size_inches())
    label = escape(alternative)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{_tidy(inside)}'


def _tidy(inside: str) -> str:
    for pattern in (_DEFINITIONS, _ID, _FONT, _TURN):
        inside = pattern.sub("", inside)
    for stand_in, colour in _COLOURS.items():
        inside = inside.replace(stand_in, colour)
    inside = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), inside)
    inside = _SPACE.sub(" ", inside)
    while (fewer := _EMPTY.sub("", inside)) != inside:
        inside = re.sub(r">\s+<", "><", fewer)
    return inside.strip()
