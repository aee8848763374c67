"""What stands below the table: the rule that is selected, candidates, queues, and whose keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.cli.top.live import STORE, WITHOUT_STORE, sources_lately
from headgate.cli.top.text import (
    Line,
    Span,
    Style,
    amount,
    bars,
    beside,
    chart,
    columns,
    count_of,
    cut,
    fitted,
    flowed,
    gathered,
    harmless,
    joined,
    left,
    line,
    moment,
    rate,
    right,
    runs,
    share,
    span,
    whole_width,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.cli.top.live import Candidate, Key, Live, Page, Queue, Rule, Scene


# The first lines: how the service stands.


_STATES: Final = {"open": "is failing, and left alone for a moment"}
_TALL: Final = 18
"""Rows of a page where there is room for more than what matters most."""
_MOST_LINES: Final = 3


def header(scene: Scene, page: Page) -> list[Line]:
    """How it stands, in two lines where there is room. Troubles have lines of their own."""
    live = scene.live
    if live is None:
        asked = line(Span("headgate top", "bold"), f"  {_clean(scene.url, page)}")
        return [asked, *(_told(scene.trouble, "bad", page) or [line("asking...")])]
    lines = flowed(_service(live, scene, page), page.width)
    if page.height is None or page.height >= _TALL:
        lines += flowed(_store(live, page), page.width)
    lines += _told(scene.trouble, "bad", page)
    for trouble in (*live.store_troubles, *live.policy_troubles):
        lines += _told(trouble, "warn", page)
    return lines


def _service(live: Live, scene: Scene, page: Page) -> list[Line]:
    is_well = live.is_well and not scene.trouble
    state = Span("ok", "good") if is_well else Span("TROUBLE", "bad")
    version = f" {_clean(live.version, page)}" if live.version else ""
    revision = "no revision" if live.revision is None else f"revision {live.revision}"
    p50, p99 = (span(one, is_ascii=page.is_ascii) for one in (live.p50, live.p99))
    return [
        line(Span(f"headgate{version}", "bold"), " ", state),
        line(f"{revision}, {count_of(live.rule_count, 'rule')}"),
        line(count_of(live.workers, "worker")),
        line(f"p50 {p50} p99 {p99}"),
    ]


def _store(live: Live, page: Page) -> list[Line]:
    words = _STATES.get(live.store_state, live.store_state)
    state = Span(_clean(words, page), "good" if live.store_state == "ok" else "bad")
    parts = [
        line(f"store {_clean(live.store_url, page)} ", state),
        line(
            f"{amount(live.allowed)} allowed, ",
            Span(f"{amount(live.denied)} denied", "bad" if live.denied else ""),
            f" since {moment(live.began, live.at)} UTC",
        ),
    ]
    if live.factor < 1:
        parts.append(line(Span(f"limits lowered to {live.factor:.0%}", "warn")))
    return parts


def _told(trouble: str, style: Style, page: Page) -> list[Line]:
    """*trouble*, in a few lines at most."""
    if not trouble:
        return []
    told = line(Span(f"! {_clean(trouble, page)}", style))
    return wrapped(told, page.width, indent="  ")[:_MOST_LINES]


def _clean(text: str, page: Page) -> str:
    return harmless(" ".join(text.split()), is_ascii=page.is_ascii)


# The rules, a row each: what they allow and deny a second, by whom it was decided, and a minute of
# both as a line of bars.


MINUTE: Final = 60
_LEAST_NAME: Final = 10
_MOST_NAME: Final = 44
_LEAST_BARS: Final = 6
_MARKS: Final = 2


class _Column(NamedTuple):
    title: str
    width: int


_ALLOWED: Final = _Column("ALLOW/S", 7)
_DENIED: Final = _Column("DENY/S", 7)
_SHADOW: Final = _Column("SHADOW/S", 8)
_SHARE: Final = _Column("DENIED", 6)
_BY: Final = _Column("BY", 14)
_WISHED: Final = (_DENIED, _ALLOWED, _SHARE, _SHADOW)
"""What is shown, the most important first."""
_SHOWN: Final = (_ALLOWED, _DENIED, _SHADOW, _SHARE, _BY)
"""In this order."""


class Layout(NamedTuple):
    """How wide everything is; *curve* 0: there is no room for one."""

    name: int
    columns: tuple[_Column, ...]
    curve: int


def layout(rules: Sequence[Rule], page: Page) -> Layout:
    """What has room on *page*."""
    longest = max((columns(name_of(one, page)) for one in rules), default=0)
    room = page.width - _MARKS - _LEAST_NAME
    chosen = set()
    for one in _WISHED:
        if room > one.width:
            chosen.add(one)
            room -= one.width + 1
    wants = min(max(longest, _LEAST_NAME), _MOST_NAME) - _LEAST_NAME
    if room >= wants + _BY.width + 1 + 2 * _LEAST_BARS:
        chosen.add(_BY)
        room -= _BY.width + 1
    curve = room - 1 - min(wants, max(0, room - 1 - _LEAST_BARS) // 2)
    curve = whole_width(MINUTE, curve) if curve >= _LEAST_BARS else 0
    name = _LEAST_NAME + min(wants, room - (curve + 1 if curve else 0))
    return Layout(max(name, 1), tuple(one for one in _SHOWN if one in chosen), curve)


def titles(shape: Layout, order: str, *, part: str = "") -> Line:
    """The head of the table, of which only *part* is seen if that is given."""
    words = ("RULE", part, "" if order == "policy" else f"by {order}")
    whole = " ".join(filter(None, words))
    short = " ".join(filter(None, words[:2]))
    name = cut(whole if columns(whole) <= shape.name else short, shape.name, ellipsis="")
    told = " ".join(
        left(one.title, one.width) if one is _BY else right(one.title, one.width)
        for one in shape.columns
    )
    curve = f" {cut('LAST MINUTE', shape.curve, ellipsis='')}" if shape.curve else ""
    return line(Span(f"{' ' * _MARKS}{left(name, shape.name)} {told}{curve}", "bold"))


def row(rule: Rule, shape: Layout, page: Page, *, earlier: Live | None, is_picked: bool) -> Line:
    """The row of one rule."""
    others = others_lately(rule, earlier)
    is_amiss = not WITHOUT_STORE.isdisjoint(others)
    marks = f"{'>' if is_picked else ' '}{'!' if is_amiss else ' '}"
    name = left(cut(name_of(rule, page), shape.name, ellipsis=page.ellipsis), shape.name)
    parts = [Span(marks, "warn" if is_amiss else ""), Span(name, "picked" if is_picked else "")]
    for one in shape.columns:
        text, style = _cell(one, rule, others, page)
        padded = left(text, one.width) if one is _BY else right(text, one.width)
        parts += [Span(" "), Span(padded, style)]
    if shape.curve:
        parts += [Span(" "), *minute(rule, shape.curve, page)]
    return tuple(parts)


def minute(rule: Rule, width: int, page: Page) -> Line:
    """The last minute of *rule* in *width* bars; red where it denied, yellow where it would."""
    allowed, denied, would = (
        _lately(series) for series in (rule.allowed, rule.denied, rule.would_deny)
    )
    every = [sum(three) for three in zip(allowed, denied, would, strict=True)]
    steps = gathered(every, width)
    text = bars(steps, max(every), is_ascii=page.is_ascii)
    return runs(text, styles_of(gathered(denied, width), gathered(would, width)))


def styles_of(denied: Sequence[float], would: Sequence[float]) -> list[Style]:
    """The style of each step."""
    pairs = zip(denied, would, strict=True)
    return ["bad" if one else "warn" if other else "good" for one, other in pairs]


def name_of(rule: Rule, page: Page) -> str:
    """Its id, and its mode if that is not to enforce."""
    shown = harmless(rule.rule_id, is_ascii=page.is_ascii)
    mode = "gone" if rule.mode is None else rule.mode
    if rule.candidate_of is not None and mode == "shadow":
        mode = "candidate"
    return shown if mode == "enforce" else f"{shown} ({harmless(mode, is_ascii=True)})"


def others_lately(rule: Rule, earlier: Live | None) -> dict[str, float]:
    """Who decided in the place of the store, and what part."""
    return {name: part for name, part in sources_lately(rule, earlier).items() if name != STORE}


def _lately(series: Sequence[float]) -> list[float]:
    kept = series[-MINUTE:]
    return [*[0.0] * (MINUTE - len(kept)), *kept]


def _cell(one: _Column, rule: Rule, others: dict[str, float], page: Page) -> tuple[str, Style]:
    if one is _ALLOWED:
        return _rate(rule.allowed_rate, "good")
    if one is _DENIED:
        return _rate(rule.denied_rate, "bad")
    if one is _SHADOW:
        return _rate(rule.shadow_rate, "warn")
    if one is _SHARE:
        told = share(rule.denied_share)
        return told, ("bad" if rule.denied_rate else "warn" if rule.shadow_rate else "dim")
    if not others:
        return (STORE if rule.sources else "-"), "dim"
    name, part = max(others.items(), key=lambda pair: (pair[0] in WITHOUT_STORE, pair[1]))
    told = f" {share(part)}"
    kept = cut(harmless(name, is_ascii=True), _BY.width - len(told), ellipsis=page.ellipsis)
    return f"{kept}{told}", "warn" if name in WITHOUT_STORE else "dim"


def _rate(per_second: float, style: Style) -> tuple[str, Style]:
    return rate(per_second), style if per_second else "dim"


Section = list[Line]

_SIDE_BY_SIDE: Final = 100
_MOST_KEYS: Final = 10
_RATE: Final = 6
_SECTIONS_LEAST_NAME: Final = 8
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
    longest = min(max(map(columns, names)), max(_SECTIONS_LEAST_NAME, room))
    lines: Section = [line(Span(title, "bold"))]
    for one, name, key in zip(shown, names, told, strict=True):
        rule = left(cut(name, longest, ellipsis=page.ellipsis), longest)
        row = line(f"  {right(rate(one.per_second), _RATE)}/s {rule}  {key}")
        lines.append(fitted(row, width, ellipsis=page.ellipsis))
    return lines
