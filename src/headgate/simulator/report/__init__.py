"""Reports on one replay, or on two of the same traffic, before a change and after it.

Read `findings` first: all that a report says. `text_report` lays it out for terminals and needs
rich (extra `cli`). Import `html` when needed, because it needs matplotlib (extra `plots`).
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from headgate.simulator.report.findings import findings
from headgate.terminal import bold, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.report.findings import Table
    from headgate.simulator.results import Outcome

_MOST_RULES: Final = 10
_MOST_KEYS: Final = 10


def text_report(outcomes: Sequence[Outcome]) -> str:
    """The report on one policy, or on the change from the first to the second, as text.

    Raises `OptionError` unless there are one or two, and `MissingPackageError` without rich.
    """
    found = findings(outcomes)
    facts = [f"{label}: {text}" for label, text in found.facts]
    facts += [f"note: {note}" for note in found.notes]
    keys = [indent(_table(one), "  ") for rule in found.rules[:_MOST_RULES] for one in rule.tables]
    parts = [bold(found.conclusion), "\n".join(facts), _table(found.overview)]
    return "\n\n".join([*parts, *(text.removeprefix("  ") for text in keys)])


def _table(one: Table) -> str:
    shown = one.rows if one.header[0] == "rule" else one.rows[:_MOST_KEYS]
    text = table(one.header, shown, numbers=one.numbers)
    title = f"{one.title}\n" if one.title else ""
    more = len(one.rows) - len(shown)
    return f"{title}{text}" + (f"\nand {more} more" if more else "")
