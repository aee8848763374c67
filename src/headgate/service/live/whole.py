"""All workers of a node as one picture: what `/admin/v1/live` answers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate import __version__
from headgate.service.live import merging, points
from headgate.service.live.recorder import MINUTE, MINUTES, SECONDS
from headgate.service.live.snapshot import json_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.service.live.snapshot import Series, State


def merged_picture(
    heard: Sequence[tuple[State, Series]],
    rules: Sequence[merging.Declared],
    *,
    now_ns: int,
    at_ns: int,
) -> dict[str, Any]:
    """The picture of all workers that were *heard* of; *rules* are the policy's."""
    ever = [state for state, _ in heard]
    now = merging.fresh(ever, now_ns)
    lines, last = _lines(heard, now_ns, at_ns)
    by_second, by_minute = lines
    second, minute = last
    return {
        "at": at_ns / SECOND,
        "began": min(one["began"] for one in ever),
        "version": __version__,
        "workers": len(now),
        "policy": merging.merged_policy(now),
        "store": merging.merged_store(now, ever),
        "factor": min((one["factor"] for one in now), default=1.0),
        "requests": merging.merged_requests(ever),
        "latency": merging.merged_latency(now),
        "rules": merging.merged_rules(ever, rules, merging.merged_rates(now)),
        "series": points.series(by_second, end=second, step=1, length=SECONDS),
        "minutes": points.series(by_minute, end=minute, step=MINUTE, length=MINUTES),
        "busiest_keys": merging.merged_keys(row for one in now for row in one["busiest_keys"]),
        "refused_keys": merging.merged_keys(row for one in now for row in one["refused_keys"]),
        "hot_keys": merging.merged_keys(row for one in now for row in one["hot_keys"]),
        "bounds": merging.merged_bounds(row for one in now for row in one["bounds"]),
        "queues": merging.merged_queues(row for one in now for row in one["queues"]),
    }


def _lines(
    heard: Sequence[tuple[State, Series]], now_ns: int, at_ns: int
) -> tuple[tuple[points.Lines, points.Lines], tuple[int, int]]:
    """All lines by second and by minute, and the numbers of their last points."""
    series = [one for _, one in heard]
    here = [one for state, one in heard if merging.fresh([state], now_ns)]
    now = at_ns // SECOND
    second = points.common_end((one.seconds.end for one in here), otherwise=now - 1)
    minute = points.common_end((one.minutes.end for one in here), otherwise=now // MINUTE - 1)
    by_second = points.merged_lines((one.seconds for one in series), end=second, length=SECONDS)
    by_minute = points.merged_lines((one.minutes for one in series), end=minute, length=MINUTES)
    return (by_second, by_minute), (second, minute)


def encoded_picture(picture: dict[str, Any]) -> bytes:
    """*picture* as JSON, in small pieces: in between, others have their turn."""
    return (
        b"{"
        + b",".join([json_of(key) + b":" + _piece(key, value) for key, value in picture.items()])
        + b"}"
    )


def _piece(key: str, value: Any) -> bytes:
    if key not in ("series", "minutes"):
        return json_of(value)
    rules = [json_of(rule) + b":" + json_of(lines) for rule, lines in value["rules"].items()]
    before = {name: part for name, part in value.items() if name != "rules"}
    return json_of(before)[:-1] + b',"rules":{' + b",".join(rules) + b"}}"
