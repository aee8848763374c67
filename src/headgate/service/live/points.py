"""Several workers' points as one series: what is drawn, and what is told per second. Pure."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any, Final

from headgate.service.live.ring import OUTCOMES, WHOLE

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

    from headgate.service.live.ring import Line, Points

MOST_DRAWN: Final = 100
"""How many rules are in a series, the busiest."""

PATIENCE: Final = 2
"""Points that the last one waits for a worker that is late."""

Lines = dict["Line", list[int]]


def common_end(ends: Iterable[int | None], *, otherwise: int) -> int:
    """The last point that all have, but for those who are late by more than `PATIENCE`."""
    known = [end for end in ends if end is not None]
    if not known:
        return otherwise
    return max(min(known), max(known) - PATIENCE)


def merged_lines(all_of: Iterable[Points], *, end: int, length: int) -> Lines:
    """The lines of all, added up: *length* points each, the last of them number *end*."""
    found: Lines = {}
    for points in all_of:
        if points.end is None:
            continue
        late = points.end - end
        for line, values in points.lines.items():
            moved = _moved(values, late, length)
            known = found.get(line)
            found[line] = moved if known is None else list(map(add, known, moved))
    return found


def _moved(values: array[int], late: int, length: int) -> list[int]:
    """*values* with *late* points less at the end, or more if it is negative."""
    if late >= 0:
        until = len(values) - late
        kept = values[max(0, until - length) : max(0, until)].tolist()
        return [0] * (length - len(kept)) + kept
    kept = values[-late:].tolist()[-length:]
    after = min(-late, length)
    return [0] * (length - len(kept) - after) + kept + [0] * after


def series(lines: Lines, *, end: int, step: int, length: int) -> dict[str, Any]:
    """*lines* of whole requests, and by rule and outcome for the busiest rules."""
    totals: dict[str, int] = {}
    for (rule, _), values in lines.items():
        if rule != WHOLE:
            totals[rule] = totals.get(rule, 0) + sum(values)
    busiest = sorted(totals, key=lambda rule: (-totals[rule], rule))[:MOST_DRAWN]
    nothing = [0] * length
    drawn = {
        rule: {outcome: lines.get((rule, outcome), nothing) for outcome in OUTCOMES}
        for rule in busiest
        if totals[rule]
    }
    whole = {
        "allowed": lines.get((WHOLE, "allowed"), nothing),
        "denied": lines.get((WHOLE, "denied"), nothing),
    }
    return {"end": end * step, "step": step, "requests": whole, "rules": drawn}
