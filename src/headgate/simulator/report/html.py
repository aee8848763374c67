"""The report as an HTML page: one file without scripts or network access.

The page begins with the conclusion and the key figures; the course over time, the rules and a
glossary follow. Plots are inline SVG with a description in words.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from headgate.simulator.report import plots
from headgate.simulator.report.plots import bars, inline_svg
from headgate.simulator.report.summary import (
    RuleDifference,
    checked,
    conclusion,
    differences,
    enforced,
    notes_of,
    ordered,
    verb_of,
)
from headgate.simulator.report.wording import (
    change,
    clipped,
    count,
    counted,
    moment,
    period,
    printable,
    share,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from headgate.simulator.report.plots import Bars
    from headgate.simulator.results import KeyResult, Outcome, RuleResult


# Parts of the page. Text of a trace or a policy is escaped here.


_LONGEST: Final = 120


def text_of(text: str, most: int = _LONGEST) -> str:
    """Return *text* escaped, at most *most* characters of it."""
    return escape(clipped(text, most))


def named(text: str) -> str:
    """Return the name of a rule, a key or a limit as code."""
    return f"<code>{text_of(text)}</code>"


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
) -> str:
    """Return a table of cells, which are markup already; the first of each row is its heading.

    *numbers* are the columns that are aligned right. A wide table scrolls by itself.
    """

    def kind(place: int) -> str:
        return ' class="number"' if place in numbers else ""

    heads = "".join(f'<th scope="col"{kind(at)}>{cell}</th>' for at, cell in enumerate(header))
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td{kind(at)}>{cell}</td>" for at, cell in enumerate(rest, 1))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}">'
        f"<table><caption>{caption}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def tile(title: str, figure: str, remark: str = "") -> str:
    """Return a key figure."""
    more = f"<small>{remark}</small>" if remark else ""
    return f"<div><dt>{title}</dt><dd><b>{figure}</b>{more}</dd></div>"


def section(title: str, *parts: str) -> str:
    """Return a part of the page under a heading; nothing without content."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{title}</h2>\n{inside}\n</section>" if inside else ""


# Plots in words, for readers who do not see them.


_COARSE: Final = 24
"""The parts of the time among which the worst is found."""


def course_in_words(outcome: Outcome) -> str:
    """Describe the plot of all requests."""
    coarse = bars(outcome, outcome.allowed_series, outcome.denied_series, most=_COARSE)
    return (
        f"Requests over time with {clipped(outcome.policy_name)}, "
        f"{period(outcome.began_ns, outcome.ended_ns)}: {count(outcome.allowed)} allowed, "
        f"{count(outcome.denied)} denied. {_worst(coarse, outcome)}"
    )


def denials_in_words(outcome: Outcome, rule: RuleResult) -> str:
    """Describe the plot of the denials of a rule."""
    coarse = bars(outcome, rule.allowed_series, rule.denied_series, most=_COARSE)
    return (
        f"Denied over time by {clipped(rule.rule_id)} with {clipped(outcome.policy_name)}: "
        f"{count(rule.denied)} of {count(rule.requests)}. {_worst(coarse, outcome)}"
    )


def _worst(coarse: Bars, outcome: Outcome) -> str:
    if not any(coarse.denied):
        return "None was denied at any time."
    place = max(range(len(coarse.denied)), key=lambda at: coarse.denied[at])
    asked = coarse.allowed[place] + coarse.denied[place]
    began = moment(coarse.began_ns + place * coarse.step_ns, outcome.began_ns)
    return (
        f"Most in the {span(coarse.step_ns)} from {began}: "
        f"{count(coarse.denied[place])} of {count(asked)}."
    )


# The section on rules.


_MOST_CARDS: Final = 30
"""The rules with a plot; others are in the table only."""
_BARS: Final = 120
_SIZE: Final = (440, 150)
_KEYS_SHOWN: Final = 6
_NOTHING: Final = "\N{EN DASH}"


def rules_section(outcomes: Sequence[Outcome]) -> str:
    """Return a table of all rules, and a card with a plot for each that denied something."""
    if len(outcomes) > 1:
        told_of = differences(*outcomes)
        overview = _difference_table(told_of)
    else:
        rules = ordered(outcomes[0])
        told_of = tuple(RuleDifference(rule.rule_id, None, rule) for rule in rules)
        overview = _rule_table(rules, outcomes[0])
    denying = [one for one in told_of if any(one.denied)]
    cards = [_card(one, outcomes) for one in denying[:_MOST_CARDS]]
    left = len(denying) - len(cards)
    rest = f"<p>{counted(left, 'rule')} more denied something: see the table.</p>" if left else ""
    return section("Rule by rule", overview, *cards, rest)


def _rule_table(rules: Sequence[RuleResult], outcome: Outcome) -> str:
    header = (
        "rule",
        "denied",
        "share",
        "of requests",
        "keys denied",
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
        "denied before",
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
    return "" if rule.mode == "enforce" else f'<span class="badge">{text_of(rule.mode)}</span>'


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
    """Return the denials of a rule over time and its keys: side by side, or below each other if
    there are two policies."""
    drawn = _plots(sides, outcomes)
    if len(sides) == 1:
        (rule,), (plot,) = sides, drawn
        return [] if rule is None else [_figure(verb_of(rule), rule, plot), _key_table(rule)]
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
    each = [
        bars(outcome, rule.allowed_series, rule.denied_series, most=_BARS) if rule else None
        for rule, outcome in zip(sides, outcomes, strict=True)
    ]
    frame = plots.frame_for(
        [one for one in each if one], width=_SIZE[0], height=_SIZE[1], palette=plots.ON_A_PAGE
    )
    return [
        inline_svg(
            plots.denials(one, frame, verb_of(rule)),
            alternative=denials_in_words(outcome, rule),
        )
        if one and rule
        else ""
        for one, rule, outcome in zip(each, sides, outcomes, strict=True)
    ]


def _key_table(rule: RuleResult) -> str:
    if not rule.top_denied:
        return "<p>No key was denied.</p>"
    first, more = rule.top_denied[:_KEYS_SHOWN], rule.top_denied[_KEYS_SHOWN:]
    shown = _keys(f"{verb_of(rule).capitalize()} most", first)
    if more:
        whole = _keys("Denied less often", more)
        shown += f"<details><summary>{count(len(more))} more</summary>{whole}</details>"
    left = rule.keys_denied - len(rule.top_denied)
    note = f"<p class='faint'>{counted(left, 'key')} more were denied less often.</p>"
    rest = note if left > 0 else ""
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
    return table(caption, ("key", "denied", "share", "of"), rows, numbers=range(1, 4))


def _shifts(one: RuleDifference) -> list[str]:
    lines = []
    for title, shift in (("Newly limited", one.newly), ("Relieved", one.relieved)):
        if shift.keys:
            names = ", ".join(named(key.key) for key in shift.keys)
            lines.append(f"<p>{title} ({shift}): {names}.</p>")
    return lines


# The section on the course over time.


_LEGEND: Final = (
    '<ul class="legend"><li style="--colour: var(--allowed)">allowed</li>'
    '<li style="--colour: var(--denied)">denied</li></ul>'
)

_SMALL: Final = (440, 300)
_LARGE_BARS: Final = 240
_LARGE: Final = (960, 330)
_ROWS: Final = 24


def time_section(outcomes: Sequence[Outcome]) -> str:
    """Return a plot for each outcome, to the same scale, and a table of its figures."""
    titles = ("before", "after") if len(outcomes) > 1 else ("",)
    drawn = _html_time_plots(outcomes, _BARS, _SMALL, "small")
    if len(outcomes) == 1:  # alone it has room for more, except on a phone
        large = _html_time_plots(outcomes, _LARGE_BARS, _LARGE, "large")
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


def _html_time_plots(
    outcomes: Sequence[Outcome], most: int, size: tuple[int, int], kind: str
) -> list[str]:
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
        header += [f"allowed{word}", f"denied{word}"]
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


_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_NOTE: Final = 300
_ARROW: Final = "\N{RIGHTWARDS ARROW}"
_DENIED: Final = (
    "The policy would have answered with status 429 and a time to retry. This is a simulation: no "
    "real request was denied."
)
_SHADOW: Final = (
    "A rule that only reports. What it would deny is counted here; it denies nothing, and is not "
    "part of the figures on top."
)
_WORDS: Final = (
    ("request", "One line of the trace, or one request of a workload."),
    ("denied", _DENIED),
    (
        "caller",
        "The sender, by API key, user or tenant where a request has one, else by address.",
    ),
    (
        "rule",
        "The requests that are counted, their key, and how many are allowed in which time.",
    ),
    ("key", "The counter that a rule keeps for a caller."),
    ("shadow", _SHADOW),
    ("newly limited", "A key with denied requests after the change and none before."),
    ("relieved", "A key with denied requests before the change and none after."),
)
_FOOTER: Final = (
    "<footer>Made by <code>headgate simulate</code>: the traffic was replayed through the rules on "
    "virtual time.</footer>"
)
_OF_TWO: Final = 2
"""The words for two policies only; they come last."""


def html_report(outcomes: Sequence[Outcome], *, title: str) -> str:
    """Return the report on one policy, or on a change from the first to the second, as HTML.

    The same outcomes give the same page, byte for byte. Raises `OptionError` unless there are one
    or two, and `MissingPackageError` without matplotlib.
    """
    given = checked(outcomes)
    style = (files(__package__) / "page.css").read_text(encoding="utf-8")
    shown = escape(printable(title))
    body = "\n".join(
        [
            f"<header>\n<h1>{shown}</h1>",
            f'<p class="conclusion">{_unbroken(conclusion(given, named=named))}</p>',
            _about(given),
            "</header>\n<main>",
            f'<dl class="tiles">{"".join(_tiles(given))}</dl>',
            time_section(given),
            rules_section(given),
            _words(given),
            "</main>",
            _FOOTER,
        ]
    )
    kind = "one" if len(given) == 1 else "two"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown}</title>\n<style>\n{style}</style>\n</head>\n"
        f'<body class="{kind}">\n{body}\n</body>\n</html>\n'
    )


def _unbroken(text: str) -> str:
    """Return *text* without line breaks before percent signs."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _about(outcomes: Sequence[Outcome]) -> str:
    first = outcomes[0]
    names = [
        named(one.policy_name) + (f" (revision {one.revision})" if one.revision else "")
        for one in outcomes
    ]
    policies = f" {_ARROW} ".join(names)
    traffic = period(first.began_ns, first.ended_ns)
    lines = [f'<p class="faint">Policy: {policies}. Traffic: {traffic}.</p>']
    if notes := notes_of(outcomes):
        items = "".join(f"<li>{text_of(note, _NOTE)}</li>" for note in notes)
        lines.append(f'<div class="note">Notes on these figures:<ul>{items}</ul></div>')
    return "\n".join(lines)


def _tiles(outcomes: Sequence[Outcome]) -> list[str]:
    last, first = outcomes[-1], outcomes[0]
    both = (first, last) if len(outcomes) > 1 else (last,)

    def figures(*numbers: int) -> str:
        return f" {_ARROW} ".join(map(count, dict.fromkeys(numbers)))

    def remark(one: int, whole: int, before: int) -> str:
        said = f"{share(one, whole)} of {count(whole)}"
        if len(outcomes) == 1:
            return said
        return f"{said}; {change(one - before) if one != before else 'as before'}"

    denying = [sum(bool(rule.denied) for rule in enforced(one)) for one in both]
    rules = f"of {counted(len(enforced(last)), 'rule')} that enforce"
    asked = [one.requests for one in both]
    return [
        tile("Requests", figures(*asked)),
        tile(
            "Denied",
            figures(*[one.denied for one in both]),
            remark(last.denied, last.requests, first.denied),
        ),
        tile(
            "Callers with denials",
            figures(*[one.callers_denied for one in both]),
            remark(last.callers_denied, last.callers, first.callers_denied),
        ),
        tile("Rules that denied", figures(*denying), rules),
    ]


def _words(outcomes: Sequence[Outcome]) -> str:
    used = _WORDS if len(outcomes) > 1 else _WORDS[:-_OF_TWO]
    items = "".join(f"<dt>{word}</dt><dd>{meaning}</dd>" for word, meaning in used)
    return section("Glossary", f'<dl class="words">{items}</dl>')
