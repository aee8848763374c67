"""A plot as SVG inside a page: its text stays text, its colours are the page's.

What matplotlib writes is a document of its own. Made part of a page it must not bring a style for
all elements, ids that collide with those of the next plot, or fonts that are not there; and the
same plot must give the same bytes.
"""

from __future__ import annotations

import re
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

from headgate.simulator.report.plots import DOTS, ON_A_PAGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
