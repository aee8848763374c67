"""The part of the page that shows the whole traffic over time, a plot for each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.simulator.report.alternatives import course_in_words
from headgate.simulator.report.markup import named, section, table
from headgate.simulator.report.scales import bars
from headgate.simulator.report.words import count, moment, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.report.scales import Bars
    from headgate.simulator.results import Outcome

_LEGEND: Final = (
    '<ul class="legend"><li style="--colour: var(--admitted)">admitted</li>'
    '<li style="--colour: var(--refused)">refused</li></ul>'
)
_BARS: Final = 120
_SMALL: Final = (440, 300)
_LARGE_BARS: Final = 240
_LARGE: Final = (960, 330)
_ROWS: Final = 24


def time_section(outcomes: Sequence[Outcome]) -> str:
    """A plot for each outcome, side by side and to the same scale, and its figures as a table."""
    titles = ("before", "after") if len(outcomes) > 1 else ("",)
    drawn = _plots(outcomes, _BARS, _SMALL, "small")
    if len(outcomes) == 1:  # alone it has room for more, except on a phone
        large = _plots(outcomes, _LARGE_BARS, _LARGE, "large")
        drawn = [one + other for one, other in zip(drawn, large, strict=True)]
    figures = [
        f"<figure>{_caption(title, outcome)}{plot}</figure>"
        for title, outcome, plot in zip(titles, outcomes, drawn, strict=True)
    ]
    return section(
        "Over time", _LEGEND, f'<div class="pair">{"".join(figures)}</div>', _figures(outcomes)
    )


def _caption(title: str, outcome: Outcome) -> str:
    return f"<figcaption>{title}: {named(outcome.policy_name)}</figcaption>" if title else ""


def _plots(outcomes: Sequence[Outcome], most: int, size: tuple[int, int], kind: str) -> list[str]:
    from headgate.simulator.report import plots
    from headgate.simulator.report.svg import inline_svg

    each = [bars(one, one.allowed_series, one.denied_series, most=most) for one in outcomes]
    frame = plots.frame_for(each, width=size[0], height=size[1], palette=plots.ON_A_PAGE)
    drawn = [
        inline_svg(plots.course(one, frame), alternative=course_in_words(outcome))
        for one, outcome in zip(each, outcomes, strict=True)
    ]
    return [f'<div class="{kind}">{one}</div>' for one in drawn]


def _figures(outcomes: Sequence[Outcome]) -> str:
    each = [bars(one, one.allowed_series, one.denied_series, most=_ROWS) for one in outcomes]
    longest = max(each, key=lambda one: len(one.allowed))
    header = ["from"]
    for word in (" before", " after") if len(outcomes) > 1 else ("",):
        header += [f"admitted{word}", f"refused{word}"]
    rows = []
    for place in range(len(longest.allowed)):
        began = moment(longest.began_ns + place * longest.step_ns, outcomes[0].began_ns)
        rows.append([began, *(cell for one in each for cell in _cells(one, place))])
    caption = f"Requests in each {span(longest.step_ns)}"
    whole = table(caption, header, rows, numbers=range(1, len(header)))
    return f"<details><summary>The same in figures</summary>{whole}</details>"


def _cells(one: Bars, place: int) -> tuple[str, str]:
    if place >= len(one.allowed):
        return "-", "-"
    return count(one.allowed[place]), count(one.denied[place])
