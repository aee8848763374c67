"""The picture of `headgate top` in rich renderables, and the view that the keys change. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from headgate.cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import RenderResult

    from headgate.cli.top.client import Candidate, Key, Live, Points, Queue, Rule, Snapshot

Order = Literal["traffic", "denied", "would deny", "share", "name", "policy"]
ORDERS: Final[tuple[Order, ...]] = ("traffic", "denied", "would deny", "share", "name", "policy")
WITHOUT_STORE: Final = frozenset({"fail_open", "fail_closed", "fallback", "local"})
"""Sources of decisions while the store is unavailable."""

_PAGE: Final = 10
_STEPS: Final = {"up": -1, "down": 1, "page up": -_PAGE, "page down": _PAGE}
_KEYS: Final = (
    ("up, down, j, k", "select a rule"),
    ("page up, page down", "move by ten rules"),
    ("g, G", "select the first or the last rule"),
    ("enter", "show this rule only; esc goes back"),
    ("s", f"sort by {', '.join(ORDERS[:-1])} or as in the {ORDERS[-1]}"),
    ("p, space", "pause and continue"),
    ("?", "show or hide this help"),
    ("q, Ctrl-C", "quit"),
)
_LEGEND: Final = """
  > the selected rule
  ! decided without the store recently: BY shows the source and its share
  SHADOW/S counts requests that shadow rules would deny. Bars are red where requests were
  denied and yellow where they would be."""


@dataclass(frozen=True, slots=True)
class View:
    """The order of the rules, the *selected* one, and the *only* one that is shown, if any."""

    order: Order = "traffic"
    selected: str | None = None
    only: str | None = None
    is_paused: bool = False
    is_help: bool = False
    is_over: bool = False

    def after(self, key: str, live: Live | None) -> View:
        """The view after *key* was pressed with *live* on the screen."""
        match key:
            case "quit":
                return replace(self, is_over=True)
            case "help":
                return replace(self, is_help=not self.is_help)
            case "pause":
                return replace(self, is_paused=not self.is_paused)
            case "sort":
                following = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
                return replace(self, order=following)
            case "back":
                return replace(self, only=None, is_help=False)
            case "open":
                return replace(self, only=self.selected, is_help=False)
        return self._moved(key, live)

    def sorted(self, live: Live) -> list[Rule]:
        """The rules in the chosen order; equal ones as in the policy."""
        key = _BY[self.order]
        return list(live.rules) if key is None else sorted(live.rules, key=key)

    def index(self, rules: list[Rule]) -> int | None:
        """The index of the selected rule in *rules*."""
        return next((n for n, one in enumerate(rules) if one.rule_id == self.selected), None)

    def _moved(self, key: str, live: Live | None) -> View:
        rules = [] if live is None else self.sorted(live)
        if not rules or self.only is not None:
            return self
        index = self.index(rules)
        if key in ("first", "last"):
            index = 0 if key == "first" else len(rules) - 1
        elif index is None:
            index = 0
        else:
            index = min(max(index + _STEPS.get(key, 0), 0), len(rules) - 1)
        return replace(self, selected=rules[index].rule_id)


_BY: Final[dict[Order, Callable[[Rule], Any] | None]] = {
    "traffic": lambda one: -one.traffic,
    "denied": lambda one: (-one.denied_rate, -one.traffic),
    "would deny": lambda one: (-one.shadow_rate, -one.traffic),
    "share": lambda one: (-(one.denied_share or 0.0), -one.traffic),
    "name": lambda one: one.rule_id,
    "policy": None,
}


# The picture.

_MINUTE: Final = 60
_SHORTEST_NAME: Final = 8
_LONGEST_NAME: Final = 46
_LONGEST_TROUBLE: Final = 300
_CHART_ROWS: Final = 8
_MOST_KEYS: Final = 10
_WIDE: Final = 100
_NARROW: Final = 60
_FIGURES: Final = ("ALLOW/S", "DENY/S", "SHADOW/S", "DENIED")
_MINUTE_TITLE: Final = "LAST MINUTE"
_COLUMNS: Final = (
    *(("ALLOW/S", 0), ("DENY/S", 0), ("SHADOW/S", _NARROW), ("DENIED", 0)),
    *((f"{'BY':14}", _WIDE), (_MINUTE_TITLE, _NARROW)),
)
"""The titles of the columns and the least width of a screen that has them."""
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_LETTERS: Final = " .:-=+*#@"


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is shown, as wide as the console and *height* rows high; None: as long as needed."""

    snapshot: Snapshot
    view: View
    height: int | None = None
    is_ascii: bool = False
    has_footer: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height, width = self.height, options.max_width
        lines = console.render_lines(_header(self.snapshot), options, pad=False)
        footer = console.render_lines(self._footer(), options, pad=False) if self.has_footer else []
        room = None if height is None else max(0, height - len(footer))
        if self.view.is_help:
            lines += console.render_lines(_help(), options, pad=False)
        elif self.snapshot.live is not None:
            left = None if room is None else room - len(lines)
            style = Style(dim=True) if self.snapshot.trouble else None
            for part in self._body(self.snapshot.live, console, options, left):
                lines += [[], *console.render_lines(part, options, style=style, pad=False)]
        if room is not None:
            lines = [*lines[:room], *[[] for _ in range(room - len(lines))]]
        for line in (*lines, *footer):
            yield from Segment.adjust_line_length(line, width, pad=False)
            yield Segment.line()

    def _body(
        self, live: Live, console: Console, options: ConsoleOptions, room: int | None
    ) -> list[RenderableType]:
        view, wide = self.view, options.max_width >= _WIDE
        if view.only is not None:
            return self._only(live, view.only, wide=wide)
        rules = view.sorted(live)
        index = view.index(rules)
        others = [
            *([] if index is None else [_about(rules[index], live)]),
            *_candidates(live),
            *_queues(live),
            *_keys(live, wide=wide),
        ]
        shown = rules
        if room is not None:
            wanted = sum(len(console.render_lines(one, options)) + 1 for one in others)
            shown = _window(rules, index, max(room * 2 // 3, room - wanted) - 2)
        part = f" {len(shown)}/{len(rules)}" if len(shown) < len(rules) else ""
        return [self._table(shown, live, options.max_width, part=part), *others]

    def _only(self, live: Live, rule_id: str, *, wide: bool) -> list[RenderableType]:
        rule = next((one for one in live.rules if one.rule_id == rule_id), None)
        if rule is None:
            return [Text(f"There is no rule {printable(rule_id)!r}.", "yellow")]
        points = live.points(rule)
        note = "No traffic recently." if not rule.traffic else "The service sends no series for it."
        return [
            self._table([rule], live, _WIDE if wide else _NARROW),
            _about(rule, live),
            _Chart(points, is_ascii=self.is_ascii) if len(points) else Text(note, "dim"),
            *_candidates(live, only=rule_id),
            *_keys(live, wide=wide, only=rule_id),
        ]

    def _table(self, rules: Sequence[Rule], live: Live, width: int, part: str = "") -> Table:
        """A row for each of *rules*, with the columns that fit into *width*."""
        order = "" if self.view.order == "policy" or self.view.only else f" by {self.view.order}"
        titles = [one for one, least in _COLUMNS if width >= least]
        name = max(_SHORTEST_NAME, width - sum(map(len, titles)) - len(titles))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        header = Text(f"  RULE{part}{order}", no_wrap=True, overflow="crop")
        table.add_column(header, max_width=min(name, _LONGEST_NAME))
        for title in titles:
            justify: Literal["left", "right"] = "right" if title in _FIGURES else "left"
            least = len(title) if title != _MINUTE_TITLE else None
            table.add_column(title, justify=justify, min_width=least, no_wrap=least is not None)
        for one in rules:
            table.add_row(*self._cells(one, live, width))
        if not rules:
            table.add_row(Text("  no rules and no decisions yet", "dim"))
        return table

    def _cells(self, rule: Rule, live: Live, width: int) -> list[RenderableType]:
        is_selected = rule.rule_id == self.view.selected and self.view.only is None
        others = {name: part for name, part in rule.source_shares().items() if name != "store"}
        is_degraded = not WITHOUT_STORE.isdisjoint(others)
        overflow: Literal["crop", "ellipsis"] = "crop" if self.is_ascii else "ellipsis"
        marks = f"{'>' if is_selected else ' '}{'!' if is_degraded else ' '}"
        name = Text(no_wrap=True, overflow=overflow)
        name.append(marks, "yellow" if is_degraded else "")
        name.append(_name(rule), "reverse" if is_selected else "")
        denied = "red" if rule.denied_rate else "yellow" if rule.shadow_rate else "dim"
        cells: list[RenderableType] = [
            name,
            _rate_cell(rule.allowed_rate, "green"),
            _rate_cell(rule.denied_rate, "red"),
        ]
        if width >= _NARROW:
            cells.append(_rate_cell(rule.shadow_rate, "yellow"))
        cells.append(Text(_share(rule.denied_share), denied))
        if width >= _WIDE:
            cells.append(_source_cell(rule, others))
        if width >= _NARROW:
            cells.append(_Bars(live.points(rule), is_ascii=self.is_ascii))
        return cells

    def _footer(self) -> Text:
        arrows = "up/down" if self.is_ascii else "↑↓"
        where = "esc back" if self.view.only is not None else f"{arrows} select  enter open"
        text = Text(no_wrap=True, overflow="crop" if self.is_ascii else "ellipsis")
        text.append(" PAUSED " if self.view.is_paused else "", "yellow")
        return text.append(f"q quit  {where}  s sort  p pause  ? help", "dim")


@dataclass(frozen=True, slots=True)
class _Bars:
    """The last minute of a rule, a bar for each step."""

    points: Points
    is_ascii: bool

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(11, options.max_width), min(_MINUTE, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield chart_rows(self.points, _MINUTE, options.max_width, 1, is_ascii=self.is_ascii)[0]


@dataclass(frozen=True, slots=True)
class _Chart:
    """All known seconds of a rule."""

    points: Points
    is_ascii: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        seconds = len(self.points)
        peak = max(every for every, _, _ in self.points.of_last(seconds))
        width = options.max_width - 9
        rows = chart_rows(self.points, seconds, width, _CHART_ROWS, is_ascii=self.is_ascii)
        bar = "|" if self.is_ascii else "│"
        for label, row in zip([f"{rate(peak)}/s", *[""] * _CHART_ROWS], rows, strict=False):
            yield Text.assemble((f"{label:>7} {bar}", "dim"), row)
        yield Text(f"{'':8}the last {seconds} seconds", "dim")


def chart_rows(
    points: Points, seconds: int, width: int, height: int, *, is_ascii: bool
) -> list[Text]:
    """The last *seconds* as *height* rows of bars, the top first, the newest at the right.

    A bar stands for the peak of its step; any traffic is visible. Red bars have denials, yellow
    ones shadow denials.
    """
    size = -(-seconds // max(1, width))
    values = points.of_last(-(-seconds // size) * size)
    steps = [values[start : start + size] for start in range(0, len(values), size)]
    peak = max((every for every, _, _ in values), default=0.0)
    rows = [Text() for _ in range(height)]
    marks = _LETTERS if is_ascii else _BLOCKS
    for step in steps:
        high, denied, shadow = (max(column) for column in zip(*step, strict=True))
        style = "red" if denied else "yellow" if shadow else "green"
        full = height * 8
        eighths = min(max(1, round(high / peak * full)), full) if high > 0 else 0
        for row, text in enumerate(reversed(rows)):
            text.append(marks[min(max(eighths - row * 8, 0), 8)], style)
    return rows


def _header(snapshot: Snapshot) -> Group:
    """The state of the service, with a line for each trouble."""
    live = snapshot.live
    trouble = [_trouble(snapshot.trouble, "red")] if snapshot.trouble else []
    if live is None:
        title = Text.assemble(("headgate top", "bold"), f"  {printable(snapshot.url)}")
        return Group(title, *(trouble or [Text("Connecting...")]))
    is_healthy = live.is_healthy and not snapshot.trouble
    revision = (
        "no revision" if live.policy.revision is None else f"revision {live.policy.revision:g}"
    )
    service = Text.assemble(
        (f"headgate {printable(live.version)}", "bold"),
        " ",
        ("healthy", "green") if is_healthy else ("UNHEALTHY", "red"),
        f"  {revision}, {_count_of(live.policy.rules, 'rule')}",
        f"  {_count_of(live.workers, 'worker')}",
        f"  p50 {_time(live.latency.p50)} p99 {_time(live.latency.p99)}",
    )
    state = "circuit open" if live.store.state == "open" else printable(live.store.state)
    store = Text.assemble(
        f"store {printable(live.store.url)} ",
        (state, "green" if live.store.state == "ok" else "red"),
        f"  {amount(live.requests.allowed)} allowed, ",
        (f"{amount(live.requests.denied)} denied", "red" if live.requests.denied else ""),
        f" since {_moment(live.began, live.at)} UTC",
        (f"  limits lowered to {live.factor:.0%}" if live.factor < 1 else "", "yellow"),
    )
    return Group(service, store, *trouble, *(_trouble(one, "yellow") for one in live.troubles()))


def _trouble(message: str, style: str) -> Text:
    return Text(f"! {printable(' '.join(message.split()))[:_LONGEST_TROUBLE]}", style)


def _help() -> Group:
    table = Table.grid(padding=(0, 2))
    for key, meaning in _KEYS:
        table.add_row(Text(f"  {key}", "bold"), Text(meaning))
    return Group(Text(), table, Text(_LEGEND))


def _window(rules: list[Rule], selected: int | None, count: int) -> list[Rule]:
    """*count* of *rules*, the selected one among them."""
    count = max(count, 1)
    first = 0 if selected is None else max(0, min(selected - count // 2, len(rules) - count))
    return rules[first : first + count]


def _about(rule: Rule, live: Live) -> Text:
    """The totals of a rule and the recent sources of its decisions."""
    shadow = rule.shadow_allowed + rule.shadow_denied
    totals = []
    if rule.allowed or rule.denied or not shadow:
        totals.append(f"{rule.allowed:,.0f} allowed, {rule.denied:,.0f} denied")
    if shadow:
        totals.append(f"in shadow {rule.shadow_denied:,.0f} of {shadow:,.0f} denied")
    since = f" since {_moment(live.began, live.at)} UTC"
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
    since = "" if one.since is None else f" since {_moment(one.since, live.at)} UTC"
    text = Text(f"{printable(one.rule_id)} ")
    if not one.requests:
        return text.append(f"has seen no request{since}")
    if not one.would_deny:
        text.append(f"would have denied none of {_count_of(one.requests, 'request')}{since}")
    else:
        callers = f"{'' if one.keys_exact else 'about '}{_count_of(one.keys, 'caller')}"
        denied = f"would have denied {_count_of(one.would_deny, 'request')} of {callers}"
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


def _keys(live: Live, *, wide: bool, only: str | None = None) -> Iterable[RenderableType]:
    """The busiest keys and the most denied ones, side by side where there is room."""
    names = {one.rule_id: _name(one) for one in live.rules}
    found = (("BUSIEST KEYS", live.busiest_keys), ("DENIED KEYS", live.refused_keys))
    tables = [
        _key_table(title, shown[:_MOST_KEYS], names)
        for title, keys in found
        if (shown := [one for one in keys if only in (None, one.rule_id)])
    ]
    if wide and len(tables) > 1:
        both = Table.grid(expand=True, padding=(0, 2, 0, 0))
        for _ in tables:
            both.add_column(ratio=1)
        both.add_row(*tables)
        yield both
    else:
        yield from tables


def _key_table(title: str, keys: Sequence[Key], names: dict[str, str]) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=9, no_wrap=True)
    for one in keys:
        name = names.get(one.rule_id) or printable(one.rule_id)
        rule = Text(name, no_wrap=True, overflow="ellipsis")
        key = Text(printable(one.key), no_wrap=True, overflow="ellipsis")
        table.add_row(Text(f"{rate(one.per_second)}/s"), rule, key)
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


def _source_cell(rule: Rule, others: dict[str, float]) -> Text:
    """The most important source besides the store."""
    if not others:
        return Text("store" if rule.sources else "-", "dim")
    name, part = max(others.items(), key=lambda pair: (pair[0] in WITHOUT_STORE, pair[1]))
    return Text(f"{printable(name)} {_share(part)}", "yellow" if name in WITHOUT_STORE else "dim")


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
    return when.strftime("%H:%M" if when.date() == today.date() else "%Y-%m-%d %H:%M")


def _count_of(number: float, name: str) -> str:
    return f"{number:,.0f} {name}{'' if round(number) == 1 else 's'}"
