"""What stands below the table: the rule that is selected, candidates, queues, and whose keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.cli.top.curves import chart, gathered, whole_width
from headgate.cli.top.ink import Line, Span, beside, fitted, line, runs, wrapped
from headgate.cli.top.live import STORE
from headgate.cli.top.scene import sources_lately
from headgate.cli.top.table import name_of, styles_of
from headgate.cli.top.words import (
    columns,
    count_of,
    cut,
    harmless,
    joined,
    left,
    moment,
    rate,
    right,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.cli.top.live import Candidate, Key, Live, Queue, Rule
    from headgate.cli.top.scene import Page

Section = list[Line]

_SIDE_BY_SIDE: Final = 100
_MOST_KEYS: Final = 10
_RATE: Final = 6
_LEAST_NAME: Final = 8
_TALLEST: Final = 12


def about(rule: Rule, live: Live, earlier: Live | None, page: Page) -> Section:
    """One rule in words: all that it has decided, and who decided lately in its name."""
    totals = rule.totals
    shadow = totals["shadow_allowed"] + totals["shadow_denied"]
    decided = f"{totals['allowed']:,.0f} allowed, {totals['denied']:,.0f} denied"
    would = f"in shadow {totals['shadow_denied']:,.0f} of {shadow:,.0f} denied"
    has_decided = totals["allowed"] or totals["denied"] or not shadow
    told = joined([decided if has_decided else "", would if shadow else ""])
    parts: list[str | Span] = [
        Span(name_of(rule, page), "bold"),
        f": {told} since {moment(live.began, live.at)} UTC",
    ]
    sources = sources_lately(rule, earlier)
    if sources:
        parts.append("; decided by ")
        ranked = sorted(sources.items(), key=lambda pair: -pair[1])
        for place, (name, part) in enumerate(ranked):
            parts.append(", " if place else "")
            text = f"{harmless(name, is_ascii=True)} {share(part)}"
            parts.append(Span(text, "" if name == STORE else "warn"))
    return wrapped(line(*parts), page.width, indent="  ")


def graph(rule: Rule, page: Page, height: int) -> Section:
    """All that is known of the seconds of *rule*, as a chart."""
    length = max(len(rule.allowed), len(rule.denied), len(rule.would_deny))
    if not length:
        # Of many rules the service tells the seconds of the busiest alone.
        told = "its seconds are not told" if rule.traffic else "nothing was asked of it lately"
        return [line(Span(told, "dim"))]
    allowed, denied, would = (
        [*[0.0] * (length - len(series)), *series]
        for series in (rule.allowed, rule.denied, rule.would_deny)
    )
    every = [sum(three) for three in zip(allowed, denied, would, strict=True)]
    width = whole_width(length, page.width - 9)
    most = max(every, default=0.0)
    styles = styles_of(gathered(denied, width), gathered(would, width))
    rows = chart(
        gathered(every, width), most, max(1, min(height, _TALLEST)), is_ascii=page.is_ascii
    )
    bar = "|" if page.is_ascii else "│"
    labels = [f"{rate(most)}/s", *[""] * (len(rows) - 1)]
    lines = [
        (Span(f"{right(label, 7)} {bar}", "dim"), *runs(text, styles))
        for label, text in zip(labels, rows, strict=True)
    ]
    return [*lines, line(Span(f"{' ' * 8}the last {length} seconds", "dim"))]


def candidates(live: Live, page: Page, *, only: str | None = None) -> Section:
    """What rules in shadow would have done."""
    found = [one for one in live.candidates if only in (None, one.rule_id, one.candidate_of)]
    if not found:
        return []
    sentences = [line(*_verdict(one, live, page)) for one in found]
    lines = [row for one in sentences for row in wrapped(one, page.width, indent="    ")]
    return [line(Span("CANDIDATES", "bold")), *lines]


def _verdict(one: Candidate, live: Live, page: Page) -> Iterator[str | Span]:
    name = harmless(one.rule_id, is_ascii=page.is_ascii)
    since = "" if one.since is None else f" since {moment(one.since, live.at)} UTC"
    if not one.requests:
        yield f"  {name} has seen no request{since}"
        return
    if not one.would_deny:
        yield f"  {name} would have denied none of {count_of(one.requests, 'request')}{since}"
    else:
        callers = f"{'' if one.is_exact else 'about '}{count_of(one.keys, 'caller')}"
        yield f"  {name} "
        denied = f"would have denied {count_of(one.would_deny, 'request')} of {callers}"
        yield Span(denied, "warn")
        yield since
    if one.newly_denied is not None and one.newly_allowed is not None:
        live_rule = harmless(one.candidate_of or "the live rule", is_ascii=page.is_ascii)
        yield f"; {one.newly_denied:,.0f} of them {live_rule} let pass"
        yield f", and {one.newly_allowed:,.0f} that it denied would pass"
    newly = one.would_deny if one.newly_denied is None else one.newly_denied
    if one.denied_anyway > one.would_deny - newly:
        yield f"; {one.denied_anyway:,.0f} of them rules in force denied anyway"


def queues(live: Live, page: Page) -> Section:
    """Where requests take turns."""
    found = [one for one in live.queues if one.waiting or one.in_flight]
    if not found:
        return []
    return [line(Span("QUEUES", "bold")), *(_queue(one, page) for one in found)]


def _queue(one: Queue, page: Page) -> Line:
    slots = "" if one.slots is None else f" of {one.slots:,.0f}"
    return line(
        f"  {harmless(one.gate, is_ascii=page.is_ascii)}: ",
        Span(f"{one.waiting:,.0f} waiting", "warn" if one.waiting else ""),
        f", {one.in_flight:,.0f}{slots} in flight",
    )


def keys(live: Live, page: Page, *, only: str | None = None) -> Section:
    """The busiest keys, and those that are refused most; side by side where there is room."""
    is_wide = page.width >= _SIDE_BY_SIDE
    width = (page.width - 2) // 2 if is_wide else page.width
    # What a rule in shadow refuses is refused to nobody: its name says that it is one.
    names = {one.rule_id: name_of(one, page) for one in live.rules}
    busiest = _keys("BUSIEST KEYS", live.busiest, width, page, names, only)
    refused = _keys("REFUSED KEYS", live.refused, width, page, names, only)
    if is_wide and busiest and refused:
        return beside(busiest, refused, width + 2)
    return [*busiest, *([()] if busiest and refused else []), *refused]


def _keys(
    title: str,
    found: Sequence[Key],
    width: int,
    page: Page,
    rules: Mapping[str, str],
    only: str | None,
) -> Section:
    shown = [one for one in found if only in (None, one.rule_id)][:_MOST_KEYS]
    if not shown:
        return []
    names = [
        rules.get(one.rule_id) or harmless(one.rule_id, is_ascii=page.is_ascii) for one in shown
    ]
    told = [harmless(one.key, is_ascii=page.is_ascii) for one in shown]
    room = width - _RATE - len("  /s   ") - max(map(columns, told))
    longest = min(max(map(columns, names)), max(_LEAST_NAME, room))
    lines: Section = [line(Span(title, "bold"))]
    for one, name, key in zip(shown, names, told, strict=True):
        rule = left(cut(name, longest, ellipsis=page.ellipsis), longest)
        row = line(f"  {right(rate(one.per_second), _RATE)}/s {rule}  {key}")
        lines.append(fitted(row, width, ellipsis=page.ellipsis))
    return lines
