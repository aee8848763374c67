"""The report as an HTML page: one file without scripts or network access."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from headgate.simulator.report.findings import findings
from headgate.simulator.report.plots import draw, svg
from headgate.terminal import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.report.findings import Plot, RuleFindings, Table
    from headgate.simulator.results import Outcome

_MOST_RULES: Final = 30
"""The rules with a plot; others are in the table only."""


def html_report(outcomes: Sequence[Outcome], *, title: str) -> str:
    """The report on one policy, or on a change from the first to the second, as HTML.

    The same outcomes give the same page, byte for byte. Raises `OptionError` unless there are one
    or two.
    """
    found = findings(outcomes)
    left = len(found.rules) - _MOST_RULES
    more = f"<p>{counted(left, 'rule')} more denied something: see the table.</p>"
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    return _file("page.html").format(
        title=escape(printable(title)),
        style=_file("page.css"),
        conclusion=re.sub("`(.*?)`", r"<code>\1</code>", escape(found.conclusion)),
        facts="; ".join(f"{label}: {escape(text)}" for label, text in found.facts),
        notes=f'<div class="note">Notes:<ul>{notes}</ul></div>' if notes else "",
        tiles="".join(
            f"<div><dt>{name}</dt><dd><b>{figure}</b><small>{remark}</small></dd></div>"
            for name, figure, remark in found.figures
        ),
        plots=_plots(found.plots),
        timeline=_table(found.timeline),
        overview=_table(found.overview),
        rules="".join(map(_rule, found.rules[:_MOST_RULES])) + (more if left > 0 else ""),
    )


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _rule(rule: RuleFindings) -> str:
    more = "".join(map(_table, rule.more_tables))
    return (
        f'<article class="rule"><h3>{_code(rule.name)}</h3>'
        f'<p class="faint">{_code(rule.limit)}</p>{_plots(rule.plots)}'
        f"{''.join(map(_table, rule.tables))}"
        + (f"<details><summary>All keys</summary>{more}</details>" if more else "")
        + "</article>"
    )


def _plots(plots: Sequence[Plot]) -> str:
    """All *plots* side by side, to the same scale."""
    figures = []
    for plot in plots:
        data = b64encode(svg(draw(plot, plots)).encode()).decode()
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(plot.description)}">'
        caption = f"<figcaption>{escape(plot.title)}</figcaption>"
        figures.append(f"<figure>{caption}{image}</figure>")
    return f'<div class="pair">{"".join(figures)}</div>'


def _table(table: Table) -> str:
    """A table whose first column has names. A wide one scrolls by itself."""
    kinds = [' class="number"' if at in table.numbers else "" for at in range(len(table.header))]
    pairs = zip(kinds, table.header, strict=True)
    heads = "".join(f'<th scope="col"{kind}>{title}</th>' for kind, title in pairs)
    rows = []
    for first, *rest in table.rows:
        pairs = zip(kinds[1:], rest, strict=True)
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in pairs)
        rows.append(f'<tr><th scope="row">{_code(first)}</th>{cells}</tr>')
    title = escape(table.title or "all rules")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{title}"><table>'
        f"<caption>{title}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
