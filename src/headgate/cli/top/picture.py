"""All of it as lines: what there is to show, how it is looked at, how large the page is. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.cli.top import sections
from headgate.cli.top import sections as table
from headgate.cli.top.sections import header
from headgate.cli.top.text import Line, Span, fitted, harmless, left, line, restyled
from headgate.cli.top.view import KEYS_TOLD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.cli.top.live import Live, Page, Rule, Scene
    from headgate.cli.top.view import View

_ENOUGH: Final = 3
"""A section is begun if it has a blank line, a title, and a line to say."""
_NARROWEST: Final = 20


def picture(scene: Scene, view: View, page: Page, *, has_keys: bool = True) -> list[Line]:
    """No line is wider than *page*, and there are no more than it has rows.

    Unless it *has_keys* to be told of, there is no line at the bottom that does so.
    """
    footer = [_footer(view, page)] if has_keys else []
    room = None if page.height is None else max(0, page.height - len(footer))
    lines = header(scene, page)
    if view.is_help:
        lines += _help()
    elif scene.live is not None and page.width >= _NARROWEST:
        left_over = None if room is None else max(0, room - len(lines) - 1)
        body = _body(scene, scene.live, view, page, left_over)
        if scene.trouble:
            body = [restyled(one, "dim") for one in body]
        lines += [(), *body]
    if room is not None:
        lines = [*lines[:room], *[()] * (room - len(lines))]
    return [fitted(one, page.width, ellipsis=page.ellipsis) for one in [*lines, *footer]]


def _body(scene: Scene, live: Live, view: View, page: Page, room: int | None) -> list[Line]:
    if view.alone is not None:
        return _alone(scene, live, view.alone, page, room)
    rules = view.sorted(live)
    picked = view.place(rules)
    others = [
        [] if picked is None else sections.about(rules[picked], live, scene.earlier, page),
        sections.candidates(live, page),
        sections.queues(live, page),
        sections.keys(live, page),
    ]
    wanted = sum(len(one) + 1 for one in others if one)
    shown = rules if room is None else _window(rules, picked, max(room * 2 // 3, room - wanted) - 1)
    shape = table.layout(rules, page)
    rows = [
        table.row(one, shape, page, earlier=scene.earlier, is_picked=one.rule_id == view.picked)
        for one in shown
    ]
    part = f"{len(shown)}/{len(rules)}" if len(shown) < len(rules) else ""
    titles = table.titles(shape, view.order, part=part)
    if not rules:
        rows = [line(Span("  no rule, and nothing decided yet", "dim"))]
    return _stacked([[titles, *rows], *others], room)


def _alone(scene: Scene, live: Live, rule_id: str, page: Page, room: int | None) -> list[Line]:
    rule = next((one for one in live.rules if one.rule_id == rule_id), None)
    if rule is None:
        shown = harmless(rule_id, is_ascii=page.is_ascii)
        return [line(Span(f"there is no rule {shown!r}", "warn"))]
    shape = table.layout([rule], page)
    figures = [
        table.titles(shape, "policy"),
        table.row(rule, shape, page, earlier=scene.earlier, is_picked=False),
    ]
    height = 8 if room is None else room // 2 - 3
    return _stacked(
        [
            figures,
            sections.about(rule, live, scene.earlier, page),
            sections.graph(rule, page, height),
            sections.candidates(live, page, only=rule_id),
            sections.keys(live, page, only=rule_id),
        ],
        room,
    )


def _stacked(parts: Iterable[list[Line]], room: int | None) -> list[Line]:
    """The parts with a blank line between; as many as have room, the last cut."""
    lines: list[Line] = []
    for part in filter(None, parts):
        gap: list[Line] = [()] if lines else []
        if room is not None and lines and room - len(lines) < min(_ENOUGH, len(part) + 1):
            break
        lines += [*gap, *part]
    return lines if room is None else lines[:room]


def _window(rules: list[Rule], picked: int | None, count: int) -> list[Rule]:
    """*count* of *rules*, the selected one among them."""
    count = max(count, 1)
    first = 0 if picked is None else max(0, min(picked - count // 2, len(rules) - count))
    return rules[first : first + count]


def _help() -> list[Line]:
    told = (line(Span(f"  {left(key, 20)}", "bold"), meaning) for key, meaning in KEYS_TOLD)
    marks = (
        "> the rule that is selected",
        "! decided without the store lately: BY says how, and how much of it",
        "SHADOW/S is what rules in shadow would have denied; bars are red where something was",
        "denied, yellow where it would have been.",
    )
    return [(), *told, (), *(line(f"  {mark}") for mark in marks)]


def _footer(view: View, page: Page) -> Line:
    arrows = "up/down" if page.is_ascii else "↑↓"
    state = Span(" PAUSED ", "warn") if view.is_paused else Span("")
    where = "esc back" if view.alone is not None else f"{arrows} select  enter open"
    told = f"q quit  {where}  s sort  p pause  ? help"
    return line(state, Span(told, "dim"))
