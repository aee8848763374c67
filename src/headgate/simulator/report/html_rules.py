"""The part of the page that goes rule by rule: what it refused, when, and to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.simulator.report.alternatives import refusals_in_words
from headgate.simulator.report.comparison import RuleDifference, differences
from headgate.simulator.report.conclusion import ordered, refused_by
from headgate.simulator.report.markup import named, section, table, told
from headgate.simulator.report.scales import bars
from headgate.simulator.report.words import change, count, counted, moment, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.results import KeyResult, Outcome, RuleResult

_MOST_CARDS: Final = 30
"""How many rules have a plot; the others are in the table alone."""
_BARS: Final = 120
_SIZE: Final = (440, 150)
_KEYS_SHOWN: Final = 6
_NOTHING: Final = "\N{EN DASH}"


def rules_section(outcomes: Sequence[Outcome]) -> str:
    """A table of all rules, and a card with a plot for each that refused something."""
    if len(outcomes) > 1:
        told_of = differences(*outcomes)
        overview = _difference_table(told_of)
    else:
        rules = ordered(outcomes[0])
        told_of = tuple(RuleDifference(rule.rule_id, None, rule) for rule in rules)
        overview = _rule_table(rules, outcomes[0])
    refusing = [one for one in told_of if any(one.denied)]
    cards = [_card(one, outcomes) for one in refusing[:_MOST_CARDS]]
    left = len(refusing) - len(cards)
    rest = f"<p>{counted(left, 'rule')} more refused something: see the table.</p>" if left else ""
    return section("Rule by rule", overview, *cards, rest)


def _rule_table(rules: Sequence[RuleResult], outcome: Outcome) -> str:
    header = (
        "rule",
        "refused",
        "share",
        "of requests",
        "keys refused",
        "of keys",
        "first",
        "limit",
    )
    rows = [
        (
            _rule_name(rule),
            count(rule.denied),
            share(rule.denied, rule.requests),
            count(rule.requests),
            count(rule.keys_denied),
            count(rule.keys),
            _NOTHING
            if rule.first_denied_ns is None
            else f'<span class="nowrap">{moment(rule.first_denied_ns, outcome.began_ns)}</span>',
            named(rule.limit),
        )
        for rule in rules
    ]
    return table("All rules", header, rows, numbers=range(1, 6))


def _difference_table(told_of: Sequence[RuleDifference]) -> str:
    header = (
        "rule",
        "refused before",
        "after",
        "change",
        "keys newly limited",
        "keys relieved",
        "limit",
    )
    rows = []
    for one in told_of:
        shown = one.after or one.before
        if shown is not None:
            rows.append(
                (
                    _rule_name(shown),
                    count(one.before.denied) if one.before else _NOTHING,
                    count(one.after.denied) if one.after else _NOTHING,
                    f'<span class="more">{change(one.change)}</span>',
                    str(one.newly),
                    str(one.relieved),
                    _limits(one),
                )
            )
    return table("All rules, before and after", header, rows, numbers=range(1, 6))


def _rule_name(rule: RuleResult) -> str:
    return named(rule.rule_id) + _badge(rule)


def _badge(rule: RuleResult) -> str:
    return "" if rule.mode == "enforce" else f'<span class="badge">{told(rule.mode)}</span>'


def _limits(one: RuleDifference) -> str:
    if one.before is None or one.after is None:
        alone = one.before or one.after
        return "" if alone is None else named(alone.limit) + (" (new)" if one.after else " (gone)")
    if one.before.limit == one.after.limit:
        return named(one.after.limit)
    return f"{named(one.before.limit)} \N{RIGHTWARDS ARROW} {named(one.after.limit)}"


def _card(one: RuleDifference, outcomes: Sequence[Outcome]) -> str:
    sides = (one.before, one.after) if len(outcomes) > 1 else (one.after,)
    shown = one.after or one.before
    heading = f"<h3>{named(one.rule_id)}{_badge(shown) if shown else ''}</h3>"
    limit = _limits(one) if len(sides) > 1 else named(one.after.limit) if one.after else ""
    parts = [
        f"<header>{heading}<p class='faint'>{limit}</p></header>",
        f'<div class="pair">{"".join(_side(sides, outcomes))}</div>',
        *(_shifts(one) if len(sides) > 1 else ()),
    ]
    return f'<article class="rule">{"".join(parts)}</article>'


def _side(sides: Sequence[RuleResult | None], outcomes: Sequence[Outcome]) -> list[str]:
    """What the rule refused over time, and to whom: side by side, for each policy below each
    other if there are two."""
    drawn = _plots(sides, outcomes)
    if len(sides) == 1:
        (rule,), (plot,) = sides, drawn
        return [] if rule is None else [_figure(refused_by(rule), rule, plot), _key_table(rule)]
    columns = []
    for title, rule, plot in zip(("before", "after"), sides, drawn, strict=True):
        if rule is None:
            columns.append(f"<div><p>{title}: there was no such rule</p></div>")
        else:
            columns.append(f"<div>{_figure(title, rule, plot)}{_key_table(rule)}</div>")
    return columns


def _figure(title: str, rule: RuleResult, plot: str) -> str:
    caption = (
        f"{title}: {counted(rule.denied, 'request')} of {count(rule.requests)} "
        f"({share(rule.denied, rule.requests)}), "
        f"{counted(rule.keys_denied, 'key')} of {count(rule.keys)}"
    )
    return f"<figure><figcaption>{caption}</figcaption>{plot}</figure>"


def _plots(sides: Sequence[RuleResult | None], outcomes: Sequence[Outcome]) -> list[str]:
    from headgate.simulator.report import plots
    from headgate.simulator.report.svg import inline_svg

    each = [
        bars(outcome, rule.allowed_series, rule.denied_series, most=_BARS) if rule else None
        for rule, outcome in zip(sides, outcomes, strict=True)
    ]
    frame = plots.frame_for(
        [one for one in each if one], width=_SIZE[0], height=_SIZE[1], palette=plots.ON_A_PAGE
    )
    return [
        inline_svg(
            plots.refusals(one, frame, refused_by(rule)),
            alternative=refusals_in_words(outcome, rule),
        )
        if one and rule
        else ""
        for one, rule, outcome in zip(each, sides, outcomes, strict=True)
    ]


def _key_table(rule: RuleResult) -> str:
    if not rule.top_denied:
        return "<p>Nobody was refused anything.</p>"
    first, more = rule.top_denied[:_KEYS_SHOWN], rule.top_denied[_KEYS_SHOWN:]
    shown = _keys(f"{refused_by(rule).capitalize()} most", first)
    if more:
        whole = _keys("Refused less than those", more)
        shown += f"<details><summary>{count(len(more))} more</summary>{whole}</details>"
    left = rule.keys_denied - len(rule.top_denied)
    rest = f"<p class='faint'>{counted(left, 'key')} more had less refused.</p>" if left > 0 else ""
    return f"<div>{shown}{rest}</div>"


def _keys(caption: str, keys: Sequence[KeyResult]) -> str:
    rows = [
        (
            named(one.key),
            count(one.denied),
            share(one.denied, one.requests),
            count(one.requests),
        )
        for one in keys
    ]
    return table(caption, ("key", "refused", "share", "of"), rows, numbers=range(1, 4))


def _shifts(one: RuleDifference) -> list[str]:
    lines = []
    for title, shift in (("Newly limited", one.newly), ("Relieved", one.relieved)):
        if shift.keys:
            names = ", ".join(named(key.key) for key in shift.keys)
            lines.append(f"<p>{title} ({shift}): {names}.</p>")
    return lines
