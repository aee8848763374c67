"""The findings of one replay, or of two of the same traffic, in words and figures.

`findings` computes everything that a report says. Text and HTML only lay it out, so they agree.
Names from a trace or a policy are printable here; HTML escapes them too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.errors import OptionError
from headgate.terminal import clipped, counted, duration, printable
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.results import KeyResult, Outcome, RuleResult

MINUS: Final = "\N{MINUS SIGN}"
TEXT_COLUMNS: Final = frozenset({"rule", "key", "first", "limit", "from"})
"""The titles of columns with text; all others have numbers."""

_LONGEST_NAME: Final = 40
_MOST_BARS: Final = 120
_FEWEST_BARS: Final = 24
_FIRST_DATE_NS: Final = 10**9 * SECOND
"""Times before September 2001 are of a clock that began at 0."""
_LAST_DATE_NS: Final = 253_402_300_800 * SECOND


class Table(NamedTuple):
    """Rows of cells; the first cell of each is its heading."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    @property
    def numbers(self) -> list[int]:
        """The columns with numbers."""
        return [place for place, title in enumerate(self.header) if title not in TEXT_COLUMNS]


@dataclass(frozen=True, slots=True)
class Plot:
    """Allowed and denied requests in equal steps from *began_ns* on, with a *title* and in words.

    *verb* is the word for denials if only those are of interest.
    """

    title: str
    began_ns: int
    step_ns: int
    allowed: tuple[int, ...]
    denied: tuple[int, ...]
    description: str = ""
    verb: str | None = None

    def merged(self, most: int) -> Plot:
        """The same in at most *most* steps: neighbours are added."""
        times = max(1, -(-len(self.allowed) // most))
        allowed, denied = (
            tuple(sum(series[at : at + times]) for at in range(0, len(series), times)) or (0,)
            for series in (self.allowed, self.denied)
        )
        return replace(self, step_ns=self.step_ns * times, allowed=allowed, denied=denied)

    def moment(self, place: int) -> str:
        """The begin of a step."""
        return moment(self.began_ns + place * self.step_ns, self.began_ns)


class RuleFindings(NamedTuple):
    """A rule that denied something: its limits, plots, and tables of keys.

    *more_tables* are for readers who want all details.
    """

    name: str
    limit: str
    plots: list[Plot]
    tables: list[Table]
    more_tables: list[Table]


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a report says. *figures* are a title, a number and a remark each."""

    conclusion: str
    facts: list[tuple[str, str]]
    notes: list[str]
    figures: list[tuple[str, str, str]]
    plots: list[Plot]
    timeline: Table
    overview: Table
    rules: list[RuleFindings]


def findings(outcomes: Sequence[Outcome]) -> Findings:
    """The findings on one policy, or on the change from the first to the second.

    Raises `OptionError` unless there are one or two outcomes.
    """
    if not 1 <= len(outcomes) <= 2:
        raise OptionError(f"a report is of one outcome or of two, not of {len(outcomes)}")
    first, last = outcomes[0], outcomes[-1]
    is_change = len(outcomes) > 1
    changes = _changes(first if is_change else None, last)
    labels = ("before", "after") if is_change else ("policy",)
    plots = [_course(label, one) for label, one in zip(labels, outcomes, strict=True)]
    return Findings(
        conclusion=_of_two(first, last) if is_change else _of_one(last),
        facts=[
            *((label, _policy(one)) for label, one in zip(labels, outcomes, strict=True)),
            ("traffic", _period(first)),
        ],
        notes=_notes(outcomes),
        figures=_figures(first, last),
        plots=plots,
        timeline=_timeline(plots),
        overview=_comparison(changes, first, last) if is_change else _overview(last),
        rules=[
            _rule(change, first if is_change else None, last)
            for change in changes
            if any(change.denied)
        ],
    )


def share(part: int, whole: int) -> str:
    """*part* of *whole* in percent: never 0 % of something, never 100 % of less than all."""
    if not part or not whole:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.01:
        return "< 0.01 %"
    rounded = f"{percent:.{2 if percent < 1 else 1 if percent < 10 else 0}f}"
    return "> 99 %" if part < whole and float(rounded) >= 100 else f"{rounded} %"


def has_dates(at_ns: int) -> bool:
    """True if *at_ns* is a date, and not a time since 0."""
    return _FIRST_DATE_NS <= at_ns < _LAST_DATE_NS


def moment(at_ns: int, began_ns: int) -> str:
    """A time: date and time in UTC, or the time since *began_ns*."""
    if not has_dates(began_ns):
        return f"after {duration(at_ns - began_ns)}"
    return f"{datetime.fromtimestamp(at_ns // SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _period(outcome: Outcome) -> str:
    length = duration(outcome.ended_ns - outcome.began_ns)
    if not has_dates(outcome.began_ns):
        return length
    began = datetime.fromtimestamp(outcome.began_ns // SECOND, UTC)
    ended = datetime.fromtimestamp(outcome.ended_ns // SECOND, UTC)
    until = f"{ended:%H:%M:%S}" if began.date() == ended.date() else f"{ended:%Y-%m-%d %H:%M:%S}"
    return f"{began:%Y-%m-%d %H:%M:%S} to {until} UTC ({length})"


def _policy(outcome: Outcome) -> str:
    revision = f", revision {outcome.revision}" if outcome.revision else ""
    return f"{clipped(outcome.policy_name)}{revision}"


def _notes(outcomes: Sequence[Outcome]) -> list[str]:
    """The notes of all outcomes, each once."""
    notes = [printable(note) for outcome in outcomes for note in outcome.notes]
    skipped = max(outcome.skipped for outcome in outcomes)
    if skipped and not any("are invalid" in note for note in notes):
        notes.append(f"{counted(skipped, 'line')} of the trace are invalid")
    if any(outcome.retries for outcome in outcomes):
        retries = " and ".join(f"{outcome.retries:,}" for outcome in outcomes)
        notes.append(f"{retries} of the requests repeat denied ones")
    return list(dict.fromkeys(notes))


# The conclusion.


def _of_one(outcome: Outcome) -> str:
    if not outcome.requests:
        return "There were no requests."
    denying = [rule for rule in _ordered(outcome) if rule.denied and rule.mode == "enforce"]
    blame = ""
    if denying:
        blame = f"; {'most' if len(denying) > 1 else 'all'} by `{clipped(denying[0].rule_id)}`"
    denied = f"{_denied(outcome)} would have been denied{blame}"
    return f"{_requests(outcome)}, {denied if outcome.denied else 'none would have been denied'}."


def _of_two(before: Outcome, after: Outcome) -> str:
    if not before.requests and not after.requests:
        return "There were no requests."
    old, new = f"`{clipped(before.policy_name)}`", f"`{clipped(after.policy_name)}`"
    more = after.denied - before.denied
    if not more:
        same = f"as many, {_denied(after)}," if after.denied else "none"
        return f"{_requests(after)}, {same} would have been denied with {new} and with {old}."
    return (
        f"With {new} instead of {old}, {abs(more):,} {'more' if more > 0 else 'fewer'} of "
        f"{counted(after.requests, 'request')} would have been denied: "
        f"{_denied(after)}, not {_denied(before)}."
    )


def _requests(outcome: Outcome) -> str:
    return f"Of {counted(outcome.requests, 'request')} of {counted(outcome.callers, 'caller')}"


def _denied(outcome: Outcome) -> str:
    part = share(outcome.denied, outcome.requests)
    return f"{outcome.denied:,} ({part}) of {counted(outcome.callers_denied, 'caller')}"


def _figures(first: Outcome, last: Outcome) -> list[tuple[str, str, str]]:
    def both(before: int, after: int) -> str:
        return " \N{RIGHTWARDS ARROW} ".join(f"{n:,}" for n in dict.fromkeys((before, after)))

    enforced = [[one for one in out.rules if one.mode == "enforce"] for out in (first, last)]
    denying = [sum(bool(rule.denied) for rule in rules) for rules in enforced]
    return [
        ("Requests", both(first.requests, last.requests), ""),
        (
            "Denied",
            both(first.denied, last.denied),
            f"{share(last.denied, last.requests)} of {last.requests:,}",
        ),
        (
            "Callers with denials",
            both(first.callers_denied, last.callers_denied),
            f"{share(last.callers_denied, last.callers)} of {last.callers:,}",
        ),
        (
            "Rules that denied",
            both(denying[0], denying[1]),
            f"of {counted(len(enforced[1]), 'enforced rule')}",
        ),
    ]


# Rule by rule.
#
# A rule reports the keys that it denied most. If these are all, the keys that are newly limited and
# relieved are known exactly; else their number is a lower bound.


class RuleChange(NamedTuple):
    """A rule under both policies; None where a policy does not have it."""

    rule_id: str
    before: RuleResult | None
    after: RuleResult | None

    @property
    def shown(self) -> RuleResult:
        """The rule as it is after the change, or was before."""
        rule = self.after or self.before
        if rule is None:
            raise ValueError("a rule of neither policy")
        return rule

    @property
    def denied(self) -> tuple[int, int]:
        """The number of denied requests before and after."""
        return self.before.denied if self.before else 0, self.after.denied if self.after else 0

    @property
    def limit(self) -> str:
        """The limits before and after."""
        limits = [clipped(one.limit) for one in (self.before, self.after) if one]
        return " -> ".join(dict.fromkeys(limits))


class Shift(NamedTuple):
    """The keys that one policy limits and the other does not: their number, and those known."""

    number: int
    is_exact: bool
    keys: tuple[KeyResult, ...]

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.number:,}"
        return f"at least {self.number:,}" if self.number else "not known"


def _changes(before: Outcome | None, after: Outcome) -> list[RuleChange]:
    """Every rule of either policy: shadow rules last, then the largest changes first."""
    old = {rule.rule_id: rule for rule in before.rules} if before else {}
    new = {rule.rule_id: rule for rule in after.rules}
    changes = [RuleChange(one, old.get(one), new.get(one)) for one in {**old, **new}]

    def order(one: RuleChange) -> tuple[bool, int, int]:
        sides = (one.before, one.after)
        is_shadow = all(side is None or side.mode != "enforce" for side in sides)
        return is_shadow, -abs(one.denied[1] - one.denied[0]), -max(one.denied)

    return sorted(changes, key=order)


def _shift(here: RuleResult | None, there: RuleResult | None) -> Shift:
    """The keys with denials *here*, and none *there*."""
    if here is None or not here.keys_denied:
        return Shift(0, is_exact=True, keys=())
    if there is None or not there.keys_denied:
        return Shift(here.keys_denied, is_exact=True, keys=here.top_denied)
    fewest = max(here.keys_denied - there.keys_denied, 0)
    if len(there.top_denied) < there.keys_denied:  # a key that is not reported may be denied there
        return Shift(fewest, is_exact=False, keys=())
    known = {one.key for one in there.top_denied}
    alone = tuple(one for one in here.top_denied if one.key not in known)
    is_exact = len(here.top_denied) >= here.keys_denied
    return Shift(max(len(alone), fewest), is_exact=is_exact, keys=alone)


def _ordered(outcome: Outcome) -> list[RuleResult]:
    """All rules: shadow rules last, then those that denied most first."""
    return sorted(outcome.rules, key=lambda rule: (rule.mode != "enforce", -rule.denied))


def _name(rule: RuleResult) -> str:
    mode = "" if rule.mode == "enforce" else f" ({clipped(rule.mode, _LONGEST_NAME)})"
    return f"{clipped(rule.rule_id, _LONGEST_NAME)}{mode}"


def _overview(outcome: Outcome) -> Table:
    header = ("rule", "denied", "share", "of", "keys denied", "of", "first", "limit")
    rows = [
        (
            _name(rule),
            f"{rule.denied:,}",
            share(rule.denied, rule.requests),
            f"{rule.requests:,}",
            f"{rule.keys_denied:,}",
            f"{rule.keys:,}",
            "-" if rule.first_denied_ns is None else moment(rule.first_denied_ns, outcome.began_ns),
            clipped(rule.limit),
        )
        for rule in _ordered(outcome)
    ]
    return Table("", header, rows)


def _comparison(changes: Sequence[RuleChange], before: Outcome, after: Outcome) -> Table:
    header = ("rule", "before", "after", "change", "newly limited", "relieved", "limit")
    rows = []
    for one in changes:
        state = "" if one.before and one.after else "new: " if one.after else "removed: "
        rows.append(
            (
                _name(one.shown),
                f"{one.before.denied:,}" if one.before else "-",
                f"{one.after.denied:,}" if one.after else "-",
                _difference(*one.denied),
                str(_shift(one.after, one.before)),
                str(_shift(one.before, one.after)),
                f"{state}{one.limit}",
            )
        )
    both = before.denied, after.denied
    total = ("all requests", f"{both[0]:,}", f"{both[1]:,}", _difference(*both), "", "", "")
    title = "denied requests, and keys that are limited by one policy only"
    return Table(title, header, [*rows, total])


def _difference(before: int, after: int) -> str:
    return f"{after - before:+,}".replace("-", MINUS) if after != before else "0"


def _rule(change: RuleChange, before: Outcome | None, after: Outcome) -> RuleFindings:
    name = _name(change.shown)
    sides = [("after" if before else "", change.after, after)]
    if before is not None:
        sides.insert(0, ("before", change.before, before))
    plots = [_denials(label, rule, one) for label, rule, one in sides if rule]
    most = [
        _keys(" ".join(filter(None, (_verb(rule), "most by", name, label))), rule.top_denied)
        for label, rule, _ in sides
        if rule
    ]
    shifts = [
        _keys(f"newly limited by {name}", _shift(change.after, change.before).keys),
        _keys(f"relieved by {name}", _shift(change.before, change.after).keys),
    ]
    tables, more = (shifts, most) if before else (most, [])
    return RuleFindings(
        name,
        change.limit,
        plots,
        [table for table in tables if table.rows],
        [table for table in more if table.rows],
    )


def _verb(rule: RuleResult) -> str:
    """The verb for the denials of *rule*: a shadow rule only would have denied."""
    return "denied" if rule.mode == "enforce" else "would be denied"


def _keys(title: str, keys: Sequence[KeyResult]) -> Table:
    rows = [
        (clipped(one.key), f"{one.denied:,}", share(one.denied, one.requests), f"{one.requests:,}")
        for one in keys
    ]
    return Table(title, ("key", "denied", "share", "of"), rows)


# Over time.


def _course(label: str, outcome: Outcome) -> Plot:
    name = clipped(outcome.policy_name)
    plot = Plot(
        f"{label}: {name}",
        outcome.began_ns,
        outcome.step_ns,
        outcome.allowed_series,
        outcome.denied_series,
    )
    words = (
        f"Requests over time with {name}, {_period(outcome)}: {outcome.allowed:,} allowed, "
        f"{outcome.denied:,} denied."
    )
    return _described(plot, words)


def _denials(label: str, rule: RuleResult, outcome: Outcome) -> Plot:
    figures = (
        f"{counted(rule.denied, 'request')} of {rule.requests:,} "
        f"({share(rule.denied, rule.requests)}), "
        f"{counted(rule.keys_denied, 'key')} of {rule.keys:,}"
    )
    plot = Plot(
        f"{label or _verb(rule)}: {figures}",
        outcome.began_ns,
        outcome.step_ns,
        rule.allowed_series,
        rule.denied_series,
        verb=_verb(rule),
    )
    words = (
        f"Denied over time by {clipped(rule.rule_id)} with {clipped(outcome.policy_name)}: "
        f"{rule.denied:,} of {rule.requests:,}."
    )
    return _described(plot, words)


def _described(plot: Plot, words: str) -> Plot:
    """*plot* in few enough steps to draw, with a description that names the worst time."""
    coarse = plot.merged(_FEWEST_BARS)
    worst = "None was denied at any time."
    if any(coarse.denied):
        place = max(range(len(coarse.denied)), key=lambda at: coarse.denied[at])
        requests = coarse.allowed[place] + coarse.denied[place]
        worst = (
            f"Most in the {duration(coarse.step_ns)} from {coarse.moment(place)}: "
            f"{coarse.denied[place]:,} of {requests:,}."
        )
    return replace(plot.merged(_MOST_BARS), description=f"{words} {worst}")


def _timeline(plots: Sequence[Plot]) -> Table:
    each = [plot.merged(_FEWEST_BARS) for plot in plots]
    longest = max(each, key=lambda one: len(one.allowed))
    words = (" before", " after") if len(each) > 1 else ("",)
    header = ("from", *(f"{what}{word}" for word in words for what in ("allowed", "denied")))
    rows = [
        (
            longest.moment(place),
            *(
                f"{series[place]:,}" if place < len(series) else "-"
                for one in each
                for series in (one.allowed, one.denied)
            ),
        )
        for place in range(len(longest.allowed))
    ]
    return Table(f"requests in each {duration(longest.step_ns)}", header, rows)
