"""The report for a terminal: the conclusion, the rules, and the keys that were denied most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.simulator.report.summary import (
    checked,
    conclusion,
    differences,
    notes_of,
    ordered,
    verb_of,
)
from headgate.simulator.report.wording import (
    change,
    clipped,
    count,
    moment,
    period,
    printable,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.report.summary import RuleDifference
    from headgate.simulator.results import KeyResult, Outcome, RuleResult

_GAP: Final = "  "
_RULES_WITH_KEYS: Final = 10
_KEYS_SHOWN: Final = 10
_NAME: Final = 40


def text_report(outcomes: Sequence[Outcome]) -> str:
    """Return the report on one policy, or on the change from the first to the second, as text.

    Raises `OptionError` unless there are one or two.
    """
    given = checked(outcomes)
    sections = [conclusion(given), _about(given)]
    if len(given) == 1:
        sections += _alone(given[0])
    else:
        sections += _beside(*given)
    return "\n\n".join(section for section in sections if section)


def _about(outcomes: Sequence[Outcome]) -> str:
    lines = []
    titles = ("before", "after") if len(outcomes) > 1 else ("policy",)
    for title, outcome in zip(titles, outcomes, strict=True):
        revision = f", revision {outcome.revision}" if outcome.revision else ""
        lines.append(f"{title}: {clipped(outcome.policy_name)}{revision}")
    lines.append(f"traffic: {period(outcomes[0].began_ns, outcomes[0].ended_ns)}")
    lines += [f"note: {printable(note)}" for note in notes_of(outcomes)]
    return "\n".join(lines)


def _alone(outcome: Outcome) -> list[str]:
    rules = ordered(outcome)
    header = ("rule", "denied", "share", "of", "keys denied", "of", "first", "limit")
    rows = [_rule_row(rule, outcome) for rule in rules]
    denying = [rule for rule in rules if rule.denied]
    keys = [
        _keys(f"{verb_of(rule)} most by {clipped(rule.rule_id)}{_shadow(rule)}", rule.top_denied)
        for rule in denying[:_RULES_WITH_KEYS]
    ]
    return [_table(header, rows, numbers=range(1, 6)), *keys]


def _rule_row(rule: RuleResult, outcome: Outcome) -> tuple[str, ...]:
    first = rule.first_denied_ns
    return (
        clipped(rule.rule_id, _NAME) + _shadow(rule),
        count(rule.denied),
        share(rule.denied, rule.requests),
        count(rule.requests),
        count(rule.keys_denied),
        count(rule.keys),
        "-" if first is None else moment(first, outcome.began_ns),
        clipped(rule.limit),
    )


def _shadow(rule: RuleResult | None) -> str:
    return "" if rule is None or rule.mode == "enforce" else f" ({clipped(rule.mode)})"


def _beside(before: Outcome, after: Outcome) -> list[str]:
    told = differences(before, after)
    header = ("rule", "before", "after", "change", "newly limited", "relieved", "limit")
    total = (
        "all requests",
        count(before.denied),
        count(after.denied),
        change(after.denied - before.denied),
        "",
        "",
        "",
    )
    rows = [_difference_row(one) for one in told]
    sections = ["denied requests, and keys that are limited by one policy only"]
    sections[0] += "\n" + _table(header, [*rows, total], numbers=range(1, 6))
    for one in told[:_RULES_WITH_KEYS]:
        name = clipped(one.rule_id)
        sections.append(_keys(f"newly limited by {name}{_shadow(one.after)}", one.newly.keys))
        sections.append(_keys(f"relieved by {name}{_shadow(one.before)}", one.relieved.keys))
    return sections


def _difference_row(one: RuleDifference) -> tuple[str, ...]:
    before, after = one.denied
    return (
        clipped(one.rule_id, _NAME) + _shadow(one.after or one.before),
        count(before) if one.before else "-",
        count(after) if one.after else "-",
        change(one.change),
        str(one.newly),
        str(one.relieved),
        _limits(one),
    )


def _limits(one: RuleDifference) -> str:
    if one.before is None or one.after is None:
        alone = one.after or one.before
        return "" if alone is None else f"{'new' if one.after else 'gone'}: {clipped(alone.limit)}"
    if one.before.limit == one.after.limit:
        return clipped(one.after.limit)
    return f"{clipped(one.before.limit)} -> {clipped(one.after.limit)}"


def _keys(title: str, keys: Sequence[KeyResult]) -> str:
    if not keys:
        return ""
    header = ("key", "denied", "share", "of")
    rows = [
        (clipped(one.key), count(one.denied), share(one.denied, one.requests), count(one.requests))
        for one in keys[:_KEYS_SHOWN]
    ]
    more = len(keys) - len(rows)
    rest = f"\n  and {more} more" if more > 0 else ""
    whole = _table(header, rows, numbers=range(1, 4))
    return f"{title}\n  " + whole.replace("\n", "\n  ") + rest


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int]) -> str:
    """Return *rows* in columns under *header*; the columns *numbers* are aligned right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return _GAP.join(placed).rstrip()

    return "\n".join(map(line, [header, *rows]))
