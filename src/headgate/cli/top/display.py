"""The picture of `headgate top` in rich renderables, and the view that keys change. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from headgate.terminal import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import RenderResult

    from headgate.cli.top.figures import Candidate, Key, Live, Queue, Rule

WITHOUT_STORE: Final = frozenset({"fail_open", "fail_closed", "fallback", "local"})
"""Sources of decisions while the store is unavailable."""

_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
_NAMES: Final = {
    **dict.fromkeys((b"\x1b[A", b"\x1bOA", b"k"), "up"),
    **dict.fromkeys((b"\x1b[B", b"\x1bOB", b"j"), "down"),
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    **dict.fromkeys((b"\x1b[H", b"\x1b[1~", b"g"), "first"),
    **dict.fromkeys((b"\x1b[F", b"\x1b[4~", b"G"), "last"),
    **dict.fromkeys((b"\r", b"\n"), "open"),
    **dict.fromkeys((b"\x1b", b"\x7f"), "back"),
    b"s": "sort",
    **dict.fromkeys((b"p", b" "), "pause"),
    **dict.fromkeys((b"?", b"h"), "help"),
    **dict.fromkeys((b"q", b"Q", b"\x03", b"\x04"), "quit"),
}
_STEPS: Final = {"up": -1, "down": 1, "page up": -10, "page down": 10}
ORDERS: Final[dict[str, Callable[[Rule], Any]]] = {
    "traffic": lambda one: -one.traffic,
    "denied": lambda one: (-one.denied_rate, -one.traffic),
    "would deny": lambda one: (-one.shadow_rate, -one.traffic),
    "share": lambda one: (-(one.denied_share or 0.0), -one.traffic),
    "name": lambda one: one.rule_id,
    "policy": lambda _: 0,
}
"""The orders of rules; equal ones stay as in the policy."""
_HELP: Final = f"""
  up, down, j, k      select a rule
  page up, page down  move by ten rules
  g, G                select the first or the last rule
  enter               show this rule only; esc goes back
  s                   sort by {", ".join(list(ORDERS)[:-1])} or as in the policy
  p, space            pause and continue
  ?                   show or hide this help
  q, Ctrl-C           quit

  > the selected rule
  ! decided without the store recently: BY shows the source and its share
  SHADOW/S counts requests that shadow rules would deny."""


def keys_in(pressed: bytes) -> list[str]:
    """The names of the keys in *pressed*, the bytes that a terminal sent; unknown ones left out."""
    found = (_NAMES.get(one) for one in _SEQUENCE.findall(pressed))
    return [name for name in found if name is not None]


@dataclass(frozen=True, slots=True)
class View:
    """The order of the rules, the *selected* one, and the *only* one that is shown, if any."""

    order: str = "traffic"
    selected: str | None = None
    only: str | None = None
    is_paused: bool = False
    is_help: bool = False

    def after(self, key: str, live: Live | None) -> View:
        """The view after *key* was pressed with *live* on the screen."""
        match key:
            case "help":
                return replace(self, is_help=not self.is_help)
            case "pause":
                return replace(self, is_paused=not self.is_paused)
            case "sort":
                orders = [*ORDERS, *ORDERS]
                return replace(self, order=orders[orders.index(self.order) + 1])
            case "back":
                return replace(self, only=None, is_help=False)
            case "open":
                return replace(self, only=self.selected, is_help=False)
        return self._moved(key, live)

    def sorted(self, live: Live) -> list[Rule]:
        """The rules in the chosen order."""
        return sorted(live.rules, key=ORDERS[self.order])

    def index(self, rules: list[Rule]) -> int | None:
        """The index of the selected rule in *rules*."""
        return next((n for n, one in enumerate(rules) if one.rule_id == self.selected), None)

    def _moved(self, key: str, live: Live | None) -> View:
        rules = [] if live is None else self.sorted(live)
        if not rules or self.only is not None:
            return self
        index, last = self.index(rules), len(rules) - 1
        if key in ("first", "last"):
            index = 0 if key == "first" else last
        else:
            index = 0 if index is None else min(max(index + _STEPS.get(key, 0), 0), last)
        return replace(self, selected=rules[index].rule_id)


# The picture.

_LONGEST_NAME: Final = 46
_LONGEST_TROUBLE: Final = 300
_MOST_KEYS: Final = 10
_WIDE: Final = 100
_NARROW: Final = 60


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is shown: *live* of the service at *url*, or None before the first figures.

    *trouble* is the reason why there are no newer ones. *is_screen*: fill the screen and end with a
    footer; else it is as long as needed.
    """

    url: str
    live: Live | None
    view: View
    trouble: str = ""
    is_screen: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = (options.height or options.size.height) if self.is_screen else None
        options = options.reset_height()
        lines = console.render_lines(self._header(), options, pad=False)
        footer = console.render_lines(self._footer(), options, pad=False) if self.is_screen else []
        room = None if height is None else max(0, height - len(footer))
        if self.view.is_help:
            lines += console.render_lines(Text(_HELP), options, pad=False)
        elif self.live is not None:
            left = None if room is None else room - len(lines)
            style = Style(dim=True) if self.trouble else None
            for part in self._body(self.live, console, options, left):
                lines += [[], *console.render_lines(part, options, style=style, pad=False)]
        if room is not None:
            lines = [*lines[:room], *[[] for _ in range(room - len(lines))]]
        for line in (*lines, *footer):
            yield from Segment.adjust_line_length(line, options.max_width, pad=False)
            yield Segment.line()

    def _header(self) -> Group:
        """The state of the service, with a line for each trouble."""
        live = self.live
        troubles = [_trouble(self.trouble, "red")] if self.trouble else []
        if live is None:
            title = Text.assemble(("headgate top", "bold"), f"  {printable(self.url)}")
            return Group(title, *(troubles or [Text("Connecting...")]))
        is_healthy = live.is_healthy and not self.trouble
        revision = live.policy.revision
        service = Text.assemble(
            (f"headgate {printable(live.version)}", "bold"),
            " ",
            ("healthy", "green") if is_healthy else ("UNHEALTHY", "red"),
            "  no revision" if revision is None else f"  revision {revision:g}",
            f", {counted(live.policy.rules, 'rule')}  {counted(live.workers, 'worker')}",
            f"  p50 {_time(live.latency.p50)} p99 {_time(live.latency.p99)}",
        )
        state = "circuit open" if live.store.state == "open" else printable(live.store.state)
        store = Text.assemble(
            f"store {printable(live.store.url)} ",
            (state, "green" if live.store.state == "ok" else "red"),
            f"  {amount(live.requests.allowed)} allowed, ",
            (f"{amount(live.requests.denied)} denied", "red" if live.requests.denied else ""),
            f" since {_moment(live.began, live.at)}",
            (f"  limits lowered to {live.factor:.0%}" if live.factor < 1 else "", "yellow"),
        )
        troubles += [_trouble(one, "yellow") for one in live.troubles()]
        return Group(service, store, *troubles)

    def _body(
        self, live: Live, console: Console, options: ConsoleOptions, room: int | None
    ) -> list[RenderableType]:
        view, width = self.view, options.max_width
        if view.only is not None:
            return self._only(live, view.only, width)
        rules = view.sorted(live)
        index = view.index(rules)
        others = [
            *([] if index is None else [_about(rules[index], live)]),
            *_candidates(live),
            *_queues(live),
            *_keys(live, width),
        ]
        shown = rules
        if room is not None:
            needed = sum(len(console.render_lines(one, options)) + 1 for one in others)
            count = max(room * 2 // 3, room - needed, 3) - 2
            first = 0 if index is None else max(0, min(index - count // 2, len(rules) - count))
            shown = rules[first : first + count]
        part = f" {len(shown)}/{len(rules)}" if len(shown) < len(rules) else ""
        order = "" if view.order == "policy" else f" by {view.order}"
        return [self._table(f"  RULE{part}{order}", shown, width), *others]

    def _only(self, live: Live, rule_id: str, width: int) -> list[RenderableType]:
        rule = next((one for one in live.rules if one.rule_id == rule_id), None)
        if rule is None:
            return [Text(f"There is no rule {printable(rule_id)!r}.", "yellow")]
        return [
            self._table("  RULE", [rule], width),
            _about(rule, live),
            *_candidates(live, only=rule_id),
            *_keys(live, width, only=rule_id),
        ]

    def _table(self, title: str, rules: Sequence[Rule], width: int) -> Table:
        """A row for each of *rules*, with the columns that fit into *width*."""
        columns = [one for one in _COLUMNS if width >= one.least]
        room = width - sum(len(one.title) + 1 for one in columns)
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        table.add_column(_line(title), max_width=min(max(room, 8), _LONGEST_NAME))
        for one in columns:
            table.add_column(one.title, justify=one.justify, min_width=len(one.title), no_wrap=True)
        for rule in rules:
            table.add_row(self._name_cell(rule), *(one.cell(rule) for one in columns))
        if not rules:
            table.add_row(Text("  no rules and no decisions yet", "dim"))
        return table

    def _name_cell(self, rule: Rule) -> Text:
        is_selected = rule.rule_id == self.view.selected and self.view.only is None
        is_degraded = not WITHOUT_STORE.isdisjoint(rule.source_shares())
        marks = f"{'>' if is_selected else ' '}{'!' if is_degraded else ' '}"
        name = _line(marks, "yellow" if is_degraded else "")
        return name.append(_name(rule), "reverse" if is_selected else "")

    def _footer(self) -> Text:
        where = "esc back" if self.view.only is not None else "j k select  enter open"
        text = _line(" PAUSED " if self.view.is_paused else "", "yellow")
        return text.append(f"q quit  {where}  s sort  p pause  ? help", "dim")


def _line(text: str, style: str = "") -> Text:
    """Text that is cut where the room ends."""
    return Text.assemble((text, style), no_wrap=True, overflow="ellipsis")


def _trouble(message: str, style: str) -> Text:
    return Text(f"! {printable(' '.join(message.split()))[:_LONGEST_TROUBLE]}", style)


def _about(rule: Rule, live: Live) -> Text:
    """The totals of a rule and the recent sources of its decisions."""
    shadow = rule.shadow_allowed + rule.shadow_denied
    totals = []
    if rule.allowed or rule.denied or not shadow:
        totals.append(f"{rule.allowed:,.0f} allowed, {rule.denied:,.0f} denied")
    if shadow:
        totals.append(f"in shadow {rule.shadow_denied:,.0f} of {shadow:,.0f} denied")
    since = f" since {_moment(live.began, live.at)}"
    text = Text.assemble((_name(rule), "bold"), f": {', '.join(totals)}{since}")
    ranked = sorted(rule.source_shares().items(), key=lambda pair: -pair[1])
    for place, (name, part) in enumerate(ranked):
        text.append(", " if place else "; decided by ")
        text.append(f"{printable(name)} {_share(part)}", "" if name == "store" else "yellow")
    return text


def _candidates(live: Live, *, only: str | None = None) -> Iterable[RenderableType]:
    found = [one for one in live.candidates if only in (None, one.rule_id, one.candidate_of)]
    if found:
        texts = (Padding(_candidate(one, live), (0, 0, 0, 2)) for one in found)
        yield Group(Text("CANDIDATES", "bold"), *texts)


def _candidate(one: Candidate, live: Live) -> Text:
    since = "" if one.since is None else f" since {_moment(one.since, live.at)}"
    text = Text(f"{printable(one.rule_id)} ")
    if not one.requests:
        return text.append(f"has seen no request{since}")
    if not one.would_deny:
        text.append(f"would have denied none of {counted(one.requests, 'request')}{since}")
    else:
        callers = f"{'' if one.keys_exact else 'about '}{counted(one.keys, 'caller')}"
        denied = f"would have denied {counted(one.would_deny, 'request')} of {callers}"
        text.append(denied, "yellow").append(since)
    if one.newly_denied is not None and one.newly_allowed is not None:
        rule = printable(one.candidate_of) or "the live rule"
        text.append(f"; {rule} allowed {one.newly_denied:,.0f} of them")
        text.append(f" and denied {one.newly_allowed:,.0f} that would be allowed")
    newly = one.would_deny if one.newly_denied is None else one.newly_denied
    if one.denied_anyway > one.would_deny - newly:
        text.append(f"; enforced rules denied {one.denied_anyway:,.0f} of them anyway")
    return text


def _queues(live: Live) -> Iterable[RenderableType]:
    found = [one for one in live.queues if one.waiting or one.in_flight]
    if found:
        yield Group(Text("QUEUES", "bold"), *map(_queue, found))


def _queue(one: Queue) -> Text:
    slots = "" if one.slots is None else f" of {one.slots:,.0f}"
    return Text.assemble(
        f"  {printable(one.gate)}: ",
        (f"{one.waiting:,.0f} waiting", "yellow" if one.waiting else ""),
        f", {one.in_flight:,.0f}{slots} in flight",
    )


def _keys(live: Live, width: int, *, only: str | None = None) -> Iterable[RenderableType]:
    """The busiest keys and the most denied ones, side by side where there is room."""
    names = {one.rule_id: _name(one) for one in live.rules}
    found = (("BUSIEST KEYS", live.busiest_keys), ("DENIED KEYS", live.refused_keys))
    tables = [
        _key_table(title, shown[:_MOST_KEYS], names)
        for title, keys in found
        if (shown := [one for one in keys if only in (None, one.rule_id)])
    ]
    if width < _WIDE or len(tables) < 2:
        yield from tables
        return
    both = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in tables:
        both.add_column(ratio=1)
    both.add_row(*tables)
    yield both


def _key_table(title: str, keys: Sequence[Key], names: dict[str, str]) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=9, no_wrap=True)
    for one in keys:
        rule = names.get(one.rule_id) or printable(one.rule_id)
        table.add_row(f"{rate(one.per_second)}/s", _line(rule), _line(printable(one.key)))
    return Group(Text(title, "bold"), table)


def _name(rule: Rule) -> str:
    """The id of a rule, and its mode unless it is enforced."""
    mode = rule.mode or "removed"
    if rule.candidate_of and mode == "shadow":
        mode = "candidate"
    name = printable(rule.rule_id)
    return name if mode == "enforce" else f"{name} ({printable(mode)})"


def _rate_cell(per_second: float, style: str) -> Text:
    return Text(rate(per_second), style if per_second else "dim")


def _denied_cell(rule: Rule) -> Text:
    style = "red" if rule.denied_rate else "yellow" if rule.shadow_rate else "dim"
    return Text(_share(rule.denied_share), style)


def _source_cell(rule: Rule) -> Text:
    """The most important source besides the store."""
    others = {name: part for name, part in rule.source_shares().items() if name != "store"}
    if not others:
        return Text("store" if rule.sources else "-", "dim")
    name, part = max(others.items(), key=lambda pair: (pair[0] in WITHOUT_STORE, pair[1]))
    return Text(f"{printable(name)} {_share(part)}", "yellow" if name in WITHOUT_STORE else "dim")


class _Column(NamedTuple):
    """A column of the table of rules: on screens of at least *least* columns."""

    title: str
    least: int
    cell: Callable[[Rule], RenderableType]
    justify: Literal["left", "right"] = "right"


_COLUMNS: Final = (
    _Column("ALLOW/S", 0, lambda rule: _rate_cell(rule.allowed_rate, "green")),
    _Column("DENY/S", 0, lambda rule: _rate_cell(rule.denied_rate, "red")),
    _Column("SHADOW/S", _NARROW, lambda rule: _rate_cell(rule.shadow_rate, "yellow")),
    _Column("DENIED", 0, _denied_cell),
    _Column(f"{'BY':14}", _WIDE, _source_cell, "left"),
)


def rate(per_second: float) -> str:
    """A rate in at most six characters: 0, 0.2, 12, 1.5k."""
    if per_second < 0.05:
        return "0" if per_second <= 0 else "<0.1"
    return f"{per_second:.1f}" if per_second < 9.95 else amount(per_second)


def amount(count: float) -> str:
    """A count in at most six characters: 999, 1.2k, 34M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            scaled = count / size
            return f"{scaled:.1f}{name}" if scaled < 99.95 else f"{scaled:.0f}{name}"
    return f"{count:.0f}"


def _share(part: float | None) -> str:
    if part is None:
        return "-"
    if 0 < part < 0.001:
        return "<0.1%"
    return f"{part:.1%}" if 0 < part < 0.1 else f"{part:.0%}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}us"
    return f"{seconds * 1e3:.1f}ms" if seconds < 1 else f"{seconds:.1f}s"


def _moment(at: float, now: float) -> str:
    """A time in UTC, with the date unless it is today."""
    when, today = (datetime.fromtimestamp(min(one, 253402300799), UTC) for one in (at, now))
    return when.strftime("%H:%M UTC" if when.date() == today.date() else "%Y-%m-%d %H:%M UTC")
