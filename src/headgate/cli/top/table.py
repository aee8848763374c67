"""The rules, a row each: what they allow and deny a second, by whom it was decided, and a minute of
both as a line of bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.cli.top.curves import bars, gathered, whole_width
from headgate.cli.top.ink import Line, Span, Style, line, runs
from headgate.cli.top.live import STORE, WITHOUT_STORE
from headgate.cli.top.scene import sources_lately
from headgate.cli.top.words import columns, cut, harmless, left, rate, right, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.cli.top.live import Live, Rule
    from headgate.cli.top.scene import Page

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
