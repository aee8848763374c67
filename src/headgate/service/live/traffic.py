"""The traffic of a node over a time range: requests, one rule, latency, outages. Pure.

The last five minutes are shown by second, longer ranges by the minutes of a day. A point has the
number of seconds that were recorded in it: 0 is a gap, and a point with less than all of them still
has a correct rate.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.service.live.merged_view import is_live, keys_of_all, last_second
from headgate.service.live.recorder import (
    LATENCIES,
    MAX_LINES,
    MINUTE,
    OUTAGE,
    OUTCOMES,
    SAMPLED,
    WHOLE,
    Series,
    quantile,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.service.live.recorder import Line
    from headgate.service.live.snapshot import KeyRow, Snapshot

    Lines = dict[Line, array[int]]


class Range(NamedTuple):
    """So many *points* of *step* seconds."""

    step: int
    points: int


RANGES: Final = {
    "5m": Range(1, 300),
    "1h": Range(MINUTE, 60),
    "6h": Range(2 * MINUTE, 180),
    "24h": Range(5 * MINUTE, 288),
}


def traffic_view(
    ever: Sequence[Snapshot],
    *,
    range_name: str,
    rule: str | None,
    now_ns: int,
    at_ns: int,
    show_key: Callable[[str], str],
) -> dict[str, Any]:
    """The traffic of all workers of a node, the reply of `/admin/v1/traffic`.

    With *rule* it has the decisions of that rule, and the busiest keys are its own.
    """
    step, points = RANGES[range_name]
    now = [one for one in ever if is_live(one, now_ns)]
    second = last_second([one.seconds for one in now], at_ns // SECOND - 1)
    end = second // step
    lines = _merged(_points(one, rule, second, step, points) for one in ever)
    nothing = array("q", bytes(8 * points))

    def counts(line: Line) -> list[int]:
        return lines.get(line, nothing).tolist()

    shadow = [lines[line] for line in lines if line[1] == "shadow_denied"]
    requests = {name: counts((WHOLE, name)) for name in ("allowed", "denied")}
    requests["shadow_denied"] = [sum(column) for column in zip(nothing, *shadow, strict=True)]
    outage = counts(OUTAGE)
    return {
        "range": range_name,
        "end": end * step,
        "step": step,
        "seconds": counts(SAMPLED),
        "outage": outage if any(outage) else [],
        "requests": requests,
        "latency": _latency(lines, points),
        "rule": _rule(lines, rule, counts, is_full=any(map(_is_full, ever))),
        "busiest_keys": _keys((one.keys.busiest for one in now), rule, show_key),
        "refused_keys": _keys((one.keys.denied for one in now), rule, show_key),
    }


def _points(one: Snapshot, rule: str | None, second: int, step: int, points: int) -> Lines:
    """The lines of a worker as *points* of *step* seconds; the last one has *second*.

    Only those of the whole node, of *rule*, and of what rules deny in shadow: others take long.
    """
    seconds = _of_interest(one.seconds, rule)
    if step == 1:
        return seconds.moved_to(second)
    lines = _minutes(_of_interest(one.minute_series(), rule), seconds, second // MINUTE)
    each = step // MINUTE
    end = second // step
    # Points begin at multiples of *step*: the last one may not be over.
    missing = (end + 1) * each - 1 - second // MINUTE
    return {line: _grouped(values, each, missing, points) for line, values in lines.items()}


def _of_interest(series: Series, rule: str | None) -> Series:
    lines = {
        line: values
        for line, values in series.lines.items()
        if line[0] in (WHOLE, rule) or line[1] == "shadow_denied"
    }
    return Series(series.length, series.end, lines)


def _minutes(minutes: Series, seconds: Series, last: int) -> Lines:
    """The *minutes* until *last*, which is not over: its *seconds* so far."""
    lines = minutes.moved_to(last)
    first = last - 1 if minutes.end is None else minutes.end + 1
    for number in range(max(first, last - 1), last + 1):
        for line, count in seconds.sums(number * MINUTE, (number + 1) * MINUTE - 1).items():
            values = lines.setdefault(line, array("q", bytes(8 * minutes.length)))
            values[number - last - 1] += count
    return lines


def _grouped(values: array[int], each: int, missing: int, points: int) -> array[int]:
    """The sums of *each* values; the last one lacks *missing* of them."""
    padded = values.tolist()[missing:] + [0] * missing
    last = padded[-each * points :]
    return array("q", map(sum, zip(*[iter(last)] * each, strict=True)))


def _merged(workers: Iterable[Lines]) -> Lines:
    """The sums of the lines of all *workers*; of recorded seconds the most that any has."""
    merged: Lines = {}
    for lines in workers:
        for line, values in lines.items():
            known = merged.get(line)
            if known is None:
                merged[line] = values
            else:
                both = max if line in (SAMPLED, OUTAGE) else int.__add__
                merged[line] = array("q", map(both, known, values))
    return merged


def _latency(lines: Lines, points: int) -> dict[str, list[float | None]]:
    """Quantiles in seconds; None where nothing was decided."""
    nothing = array("q", bytes(8 * points))
    columns = [*zip(*(lines.get(line, nothing) for line in LATENCIES), strict=True)]
    return {
        f"p{share}": [quantile(column, share / 100) for column in columns] for share in (50, 90, 99)
    }


def _is_full(one: Snapshot) -> bool:
    """True if a worker may have dropped lines."""
    return len(one.seconds.lines) >= MAX_LINES


def _rule(
    lines: Lines, rule: str | None, counts: Callable[[Line], list[int]], *, is_full: bool
) -> dict[str, list[int]] | None:
    """The decisions of *rule*; None if they may have been dropped among too many."""
    if rule is None or (is_full and not any(one[0] == rule for one in lines)):
        return None
    return {outcome: counts((rule, outcome)) for outcome in OUTCOMES}


def _keys(
    workers: Iterable[list[KeyRow]], rule: str | None, show_key: Callable[[str], str]
) -> list[dict[str, Any]]:
    rows: Iterator[KeyRow] = chain.from_iterable(workers)
    return keys_of_all((row for row in rows if rule in (None, row[0])), show_key)
