"""Plots of a report by matplotlib: allowed and denied requests over time. Needs the extra `plots`.

A plot names its colours by their meaning. `ON_PAPER` is for PNG files. `ON_A_PAGE` stands for the
colours of the HTML page, which differ in dark mode: `inline_svg` puts them in. No global state of
matplotlib is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from headgate.simulator.report.summary import checked, verb_of
from headgate.simulator.report.wording import ELLIPSIS, clipped, count, has_dates, share
from headgate.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from headgate.simulator.results import Outcome, RuleResult

_PER: Final = ((SECOND, "a second"), (MINUTE, "a minute"), (HOUR, "an hour"), (DAY, "a day"))
_SECONDS: Final = (1, 2, 5, 10, 15, 30)
_STEPS: Final = (
    *(
        unit * n
        for unit in (MICROSECOND, MILLISECOND)
        for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)
    ),
    *(SECOND * n for n in _SECONDS),
    *(MINUTE * n for n in _SECONDS),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 365)),
)
"""Distances between the marks of a time axis."""


@dataclass(frozen=True, slots=True)
class Bars:
    """The allowed and denied requests in equal steps from *began_ns* on."""

    began_ns: int
    step_ns: int
    allowed: tuple[int, ...]
    denied: tuple[int, ...]

    @property
    def ended_ns(self) -> int:
        return self.began_ns + self.step_ns * len(self.allowed)

    @property
    def edges_ns(self) -> list[int]:
        """The begin of each bar, and the end of the last."""
        return [self.began_ns + self.step_ns * n for n in range(len(self.allowed) + 1)]


def bars(outcome: Outcome, allowed: Sequence[int], denied: Sequence[int], *, most: int) -> Bars:
    """Return two series of *outcome* in at most *most* bars: neighbours are added."""
    together = max(1, -(-len(allowed) // most))
    return Bars(
        outcome.began_ns,
        outcome.step_ns * together,
        _added(allowed, together) or (0,),
        _added(denied, together) or (0,),
    )


def _added(series: Sequence[int], together: int) -> tuple[int, ...]:
    return tuple(sum(series[n : n + together]) for n in range(0, len(series), together))


def unit_of(highest: int, step_ns: int) -> tuple[int, str]:
    """Return the first unit in which *highest* requests in *step_ns* are at least 1: its length in
    nanoseconds, and its words."""
    for length_ns, words in _PER:
        if highest * length_ns >= step_ns:
            return length_ns, words
    return _PER[-1]


def rates(series: Sequence[int], step_ns: int, unit_ns: int) -> list[float]:
    """Convert counts per step to another unit."""
    return [number * unit_ns / step_ns for number in series]


def time_marks(began_ns: int, ended_ns: int, *, most: int) -> list[tuple[int, str]]:
    """Return at most *most* round times between two, with their labels."""
    length = max(ended_ns - began_ns, 1)
    step = next((one for one in _STEPS if length < one * most), _STEPS[-1])
    step *= max(1, -(-length // (step * most)))
    dated = has_dates(began_ns)
    zero = 0 if dated else began_ns
    first = zero + -(-(began_ns - zero) // step) * step
    return [
        (at, _dated(at, step) if dated else _since(at - began_ns, step))
        for at in range(first, ended_ns + 1, step)
    ]


def _dated(at_ns: int, step_ns: int) -> str:
    at = datetime.fromtimestamp(at_ns // SECOND, UTC)
    if step_ns >= DAY:
        return f"{at.day} {at:%b}"
    if step_ns >= MINUTE:
        return f"{at:%H:%M}"
    if step_ns >= SECOND:
        return f"{at:%H:%M:%S}"
    return f"{at:%S}.{at_ns % SECOND // MICROSECOND:06}".rstrip("0").rstrip(".") + " s"


def _since(after_ns: int, step_ns: int) -> str:
    for unit_ns, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if step_ns >= unit_ns and step_ns % unit_ns == 0:
            return f"{after_ns // unit_ns:,} {name}"
    return f"{after_ns / SECOND:g} s"


DOTS: Final = 72
"""Per inch, so that a size is in points, the units of an SVG."""
_MARK_WIDTH: Final = 78
_NUMBERS: Final = 38
_TIMES: Final = 24
_RIGHT: Final = 28
_HEADING: Final = 24
_SIDE: Final = 10
"""Margins in points."""
_UPPER_SHARE: Final = 0.6
_HEADROOM: Final = 1.04
_LARGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a plot by their meaning; a *background* of None is transparent."""

    ink: str
    faint: str
    grid: str
    allowed: str
    denied: str
    background: str | None


ON_PAPER: Final = Palette("#1f2328", "#57606a", "#d8dee4", "#2f6fb0", "#c2410c", "#ffffff")
ON_A_PAGE: Final = Palette("#010101", "#010102", "#010103", "#010104", "#010105", None)


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a plot in points, and the top of its scales, so that two can be compared.

    *highest* are the largest numbers in a step: of requests, and of denials.
    """

    width: int
    height: int
    highest: tuple[int, int]
    palette: Palette
    font_size: float = 12
    title: str | None = None

    @property
    def left(self) -> int:
        """The left end of the axes."""
        return _NUMBERS + (_SIDE if self.palette.background else 0)

    @property
    def heading(self) -> int:
        """The top of the first axes."""
        return _HEADING + (_HEADING + _SIDE if self.title else 0)

    @property
    def inner_height(self) -> int:
        """The height for axes, and for the headings of all but the first."""
        return self.height - self.heading - _TIMES


def frame_for(
    all_bars: Sequence[Bars], *, width: int, height: int, palette: Palette, title: str | None = None
) -> Frame:
    """Return a frame in which each of *all_bars* fits, with the same scales."""
    asked = max(max(map(sum, zip(one.allowed, one.denied, strict=True))) for one in all_bars)
    denied = max(max(one.denied) for one in all_bars)
    return Frame(width, height, (asked, denied), palette, title=title)


def course(bars: Bars, frame: Frame) -> Figure:
    """Draw all requests over time, the denied ones on top; below, the denied ones alone, if there
    are any."""
    figure = _figure(frame)
    if not frame.highest[1]:
        _allowed(_axes(figure, frame, 0, frame.inner_height), bars, frame)
        return figure
    room = frame.inner_height - _HEADING
    above = _axes(figure, frame, 0, room * _UPPER_SHARE)
    below = _axes(figure, frame, room * _UPPER_SHARE + _HEADING, room * (1 - _UPPER_SHARE))
    _allowed(above, bars, frame)
    _denied(below, bars, frame, "denied only, on their own scale")
    above.tick_params(axis="x", labelbottom=False)
    return figure


def denials(bars: Bars, frame: Frame, word: str) -> Figure:
    """Draw the denials over time; *word* is their title."""
    figure = _figure(frame)
    _denied(_axes(figure, frame, 0, frame.inner_height), bars, frame, word)
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
    """Add axes of *height*, *below* the first line of the frame; both in points.

    Placed by hand: a layout measures all texts first, which takes longer than to draw them.
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


def _allowed(axes: Axes, bars: Bars, frame: Frame) -> None:
    palette = frame.palette
    unit_ns, words = unit_of(frame.highest[0], bars.step_ns)
    allowed = rates(bars.allowed, bars.step_ns, unit_ns)
    together = [sum(pair) for pair in zip(bars.allowed, bars.denied, strict=True)]
    asked = rates(together, bars.step_ns, unit_ns)
    _stairs(axes, bars, asked, palette.denied, baseline=allowed)
    _stairs(axes, bars, allowed, palette.allowed)
    _style(axes, bars, frame, frame.highest[0] * unit_ns / bars.step_ns)
    title: Any = axes.set_title(
        f"requests {words}", loc="left", fontsize=frame.font_size, color=palette.ink
    )
    if palette.background:  # a page has a legend of its own, and a font that is not known here
        for text, colour in (("  allowed", palette.allowed), ("  denied", palette.denied)):
            title = _beside(axes, title, text, colour, frame)


def _beside(axes: Axes, before: Any, text: str, colour: str, frame: Frame) -> Any:
    """Write *text* right after *before*."""
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


def _denied(axes: Axes, bars: Bars, frame: Frame, title: str) -> None:
    unit_ns, words = unit_of(frame.highest[1], bars.step_ns)
    _stairs(axes, bars, rates(bars.denied, bars.step_ns, unit_ns), frame.palette.denied)
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
# matplotlib writes a whole document. Inside a page it must not bring styles for all elements, ids
# that collide with those of other plots, or fonts; and the same plot must give the same bytes.


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
    ON_A_PAGE.allowed: "var(--allowed)",
    ON_A_PAGE.denied: "var(--denied)",
}
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


def inline_svg(figure: Figure, *, alternative: str) -> str:
    """Return *figure* as an element of a page; *alternative* describes it in words."""
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


# PNG files, for a slide or a ticket.

_PNG_SIZE: Final = (880, 340)
_RULE_PNG_SIZE: Final = (880, 210)
_BARS: Final = 240
_PNG_DOTS: Final = 144
_LONGEST_STEM: Final = 40
_LAST_KNOWN: Final = 0x24F
"""The last character that every font of matplotlib has."""


def write_pngs(outcomes: Sequence[Outcome], directory: str | Path) -> list[Path]:
    """Write the plots of *outcomes* into *directory*, and return the paths of the files.

    `requests.png` is all traffic, `rule-1-ID.png` and so on the rules that denied something, in
    the order of the policy; with two policies each name has `-before` or `-after`. Files of these
    names are overwritten. Raises `OptionError` unless there are one or two outcomes, and
    `MissingPackageError` without matplotlib.
    """
    given = checked(outcomes)
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    endings = ("-before", "-after") if len(given) > 1 else ("",)
    written = []
    for outcome, ending, figure in zip(given, endings, _courses(given), strict=True):
        written.append(_saved(figure, place / f"requests{ending}.png"))
        for number, rule in enumerate(outcome.rules, 1):
            if rule.denied:
                name = f"rule-{number}-{_stem(rule.rule_id)}{ending}.png"
                written.append(_saved(_rule(outcome, rule), place / name))
    return written


def _courses(outcomes: Sequence[Outcome]) -> list[Figure]:
    each = [bars(one, one.allowed_series, one.denied_series, most=_BARS) for one in outcomes]
    drawn = []
    for one, outcome in zip(each, outcomes, strict=True):
        part = share(outcome.denied, outcome.requests)
        title = f"{_drawable(outcome.policy_name)}: {count(outcome.denied)} ({part}) denied"
        frame = frame_for(
            each, width=_PNG_SIZE[0], height=_PNG_SIZE[1], palette=ON_PAPER, title=title
        )
        drawn.append(course(one, frame))
    return drawn


def _rule(outcome: Outcome, rule: RuleResult) -> Figure:
    one = bars(outcome, rule.allowed_series, rule.denied_series, most=_BARS)
    part = share(rule.denied, rule.requests)
    mode = "" if rule.mode == "enforce" else f" ({_drawable(rule.mode)})"
    title = f"{_drawable(rule.rule_id)}{mode}, {_drawable(rule.limit)}: "
    frame = frame_for(
        [one],
        width=_RULE_PNG_SIZE[0],
        height=_RULE_PNG_SIZE[1],
        palette=ON_PAPER,
        title=f"{title}{count(rule.denied)} ({part}) {verb_of(rule)}",
    )
    return denials(one, frame, verb_of(rule))


def _saved(figure: Figure, target: Path) -> Path:
    figure.savefig(target, format="png", dpi=_PNG_DOTS, metadata={"Software": None})
    return target


def _stem(rule_id: str) -> str:
    """Return the part of a rule's id that is safe in file names."""
    return re.sub(r"[^a-z0-9]+", "-", rule_id.lower())[:_LONGEST_STEM].strip("-") or "rule"


def _drawable(text: str) -> str:
    """Return *text* with characters escaped that the font may not have."""
    return "".join(
        one if ord(one) <= _LAST_KNOWN or one == ELLIPSIS else f"\\u{ord(one):04x}"
        for one in clipped(text)
    )
