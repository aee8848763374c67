"""Pieces of the page. Whatever comes from a trace or a policy is escaped here."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from headgate.simulator.report.words import clipped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_LONGEST: Final = 120


def told(text: str, most: int = _LONGEST) -> str:
    """*text*, whoever it comes from, as text of a page; no more than *most* characters of it."""
    return escape(clipped(text, most))


def named(text: str) -> str:
    """The same as a name: a rule, a key, a limit."""
    return f"<code>{told(text)}</code>"


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
) -> str:
    """A table of cells that are markup already; the first of each row names it.

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
    """A key figure."""
    more = f"<small>{remark}</small>" if remark else ""
    return f"<div><dt>{title}</dt><dd><b>{figure}</b>{more}</dd></div>"


def section(title: str, *parts: str) -> str:
    """A part of the page under a heading; nothing without content."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{title}</h2>\n{inside}\n</section>" if inside else ""
