"""The plots of a report as PNG files, for a slide or a ticket."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import not_installed
from headgate.simulator.report.scales import bars
from headgate.simulator.report.summary import checked, refused_by
from headgate.simulator.report.wording import ELLIPSIS, clipped, count, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from headgate.simulator.results import Outcome, RuleResult


# The package that draws is an extra: asked for when something is drawn, not before.


def needing_plots() -> None:
    """Go on if matplotlib is there; else raise `MissingPackageError`, which says how to get it."""
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise not_installed("plots", error) from error


_SIZE: Final = (880, 340)
_RULE_SIZE: Final = (880, 210)
_BARS: Final = 240
_DOTS: Final = 144
_LONGEST_STEM: Final = 40
_LAST_KNOWN: Final = 0x24F
"""The last character of those that every font of matplotlib's has: Latin with its additions."""


def write_pngs(outcomes: Sequence[Outcome], directory: str | Path) -> list[Path]:
    """Write the plots of *outcomes* into *directory*, which is made if need be; the files' paths.

    `requests.png` is all traffic, `rule-1-ID.png` and so on the rules that refused something, in
    the order of the policy; with two policies each name has `-before` or `-after`. Files of these
    names are overwritten. Raises `OptionError` unless there are one or two outcomes, and
    `MissingPackageError` without matplotlib.
    """
    given = checked(outcomes)
    needing_plots()
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
    from headgate.simulator.report import plots

    each = [bars(one, one.allowed_series, one.denied_series, most=_BARS) for one in outcomes]
    drawn = []
    for one, outcome in zip(each, outcomes, strict=True):
        part = share(outcome.denied, outcome.requests)
        title = f"{_drawable(outcome.policy_name)}: {count(outcome.denied)} ({part}) refused"
        frame = plots.frame_for(
            each, width=_SIZE[0], height=_SIZE[1], palette=plots.ON_PAPER, title=title
        )
        drawn.append(plots.course(one, frame))
    return drawn


def _rule(outcome: Outcome, rule: RuleResult) -> Figure:
    from headgate.simulator.report import plots

    one = bars(outcome, rule.allowed_series, rule.denied_series, most=_BARS)
    part = share(rule.denied, rule.requests)
    mode = "" if rule.mode == "enforce" else f" ({_drawable(rule.mode)})"
    title = f"{_drawable(rule.rule_id)}{mode}, {_drawable(rule.limit)}: "
    frame = plots.frame_for(
        [one],
        width=_RULE_SIZE[0],
        height=_RULE_SIZE[1],
        palette=plots.ON_PAPER,
        title=f"{title}{count(rule.denied)} ({part}) {refused_by(rule)}",
    )
    return plots.refusals(one, frame, refused_by(rule))


def _saved(figure: Figure, target: Path) -> Path:
    figure.savefig(target, format="png", dpi=_DOTS, metadata={"Software": None})
    return target


def _stem(rule_id: str) -> str:
    """What of a rule's id can stand in the name of a file anywhere."""
    return re.sub(r"[^a-z0-9]+", "-", rule_id.lower())[:_LONGEST_STEM].strip("-") or "rule"


def _drawable(text: str) -> str:
    """*text* without characters that the font may not have."""
    return "".join(
        one if ord(one) <= _LAST_KNOWN or one == ELLIPSIS else f"\\u{ord(one):04x}"
        for one in clipped(text)
    )
