"""All figures of a worker at one moment: its counts, its policy and store, the busiest keys."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import HeadgateError
from headgate.observability.candidates import folded_candidates
from headgate.service.live.recorder import MINUTES, Series
from headgate.stores.base import groups_of
from headgate.stores.layers.leases import LeasedStore
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.control.watcher import PolicyWatcher
    from headgate.observability import DecisionRecorder
    from headgate.observability.metrics import MetricSnapshot, Sample
    from headgate.observability.sketches import Heavy
    from headgate.service.core import Core
    from headgate.service.live.recorder import Name

    Samples = Mapping[str, tuple[Sample, ...]]
    """The samples of metrics by name."""

FORMAT: Final = b"headgate live 4\n"
"""Raise the number when `Snapshot` changes: after an upgrade, a worker that is restarted runs newer
code than the others."""

MAX_KEYS: Final = 40
"""Keys of each kind per worker: more than are shown, because workers have different keys."""

MAX_KEYS_OF_RULE: Final = 10
"""Keys of each rule besides."""

_ALL: Final = 1_024

KeyRow = tuple[str | None, str, float, float]
"""Rule, key, lower and upper bound of requests per second."""


class SnapshotError(HeadgateError):
    """Data that is not a snapshot of this version."""


class TopKeys(NamedTuple):
    """The busiest keys, the most denied ones, those that the store is asked for most, and by rule
    the number of nodes with leases and the maximum overshoot in units."""

    busiest: list[KeyRow]
    denied: list[KeyRow]
    hot: list[KeyRow]
    bounds: list[tuple[str | None, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The figures of a worker.

    *seen_ns* is the time of the snapshot on the monotonic clock, which all processes share.
    *requests* are the numbers of denied and allowed ones, *latency* the requests of the last minute
    by latency bucket. *cells* count decisions by rule, outcome and source, *rates* are their recent
    rates per second; *previous* are the cells of earlier workers in the same place. *queues* have
    for each gate: requests that wait, requests in flight, slots, and seconds to wait. *metrics* are
    all metrics except the cells. *minutes* are packed if the snapshot is that of another worker.
    *nodes* are those of the fleet, if this worker publishes for its node.
    """

    seen_ns: int
    began: float
    policy: dict[str, Any]
    store: dict[str, Any]
    factor: float
    requests: tuple[int, int]
    latency: list[int]
    cells: dict[Name, int]
    rates: dict[Name, float]
    keys: TopKeys
    queues: dict[str, list[float]]
    seconds: Series
    minutes: Series | bytes
    candidates: list[dict[str, Any]]
    metrics: tuple[MetricSnapshot, ...]
    previous: Mapping[Name, int]
    nodes: list[dict[str, Any]]

    @classmethod
    def decoded(cls, data: bytes) -> Snapshot:
        """Decode the result of `encoded`. Raises `SnapshotError`."""
        if not data.startswith(FORMAT):
            raise SnapshotError(f"the format is {data[:40]!r}; expected {FORMAT!r}")
        # Only workers of this service can write to the memory that they share.
        found: Snapshot = pickle.loads(data[len(FORMAT) :])  # noqa: S301
        return found

    def encoded(self) -> bytes:
        minutes = self.minutes if isinstance(self.minutes, bytes) else _packed(self.minutes)
        packed = replace(self, minutes=minutes)
        return FORMAT + pickle.dumps(packed, protocol=pickle.HIGHEST_PROTOCOL)

    def minute_series(self) -> Series:
        """The minutes."""
        if isinstance(self.minutes, Series):
            return self.minutes
        found: Series = pickle.loads(zlib.decompress(self.minutes))  # noqa: S301 (as in decoded)
        return found

    def without_series(self) -> Snapshot:
        """The same without points and shadow rules."""
        empty = Series(self.seconds.length), Series(MINUTES)
        return replace(self, seconds=empty[0], minutes=empty[1], candidates=[])

    def ended(self) -> Snapshot:
        """The same, to be continued by the next worker in the same place."""
        return replace(
            self,
            cells={},
            previous=Counter(self.cells) + Counter(self.previous),
            candidates=[folded_candidates(self.candidates)],
        )

    def continuing(self, previous: Snapshot) -> Snapshot:
        """The same with the counts of *previous*, so that a restart loses nothing."""
        store, before = self.store, previous.store
        return replace(
            self,
            began=min(self.began, previous.began),
            requests=(
                self.requests[0] + previous.requests[0],
                self.requests[1] + previous.requests[1],
            ),
            store={
                **store,
                "calls": store["calls"] + before["calls"],
                "errors": dict(Counter(store["errors"]) + Counter(before["errors"])),
            },
            previous=previous.previous,
        )


_packed_last: tuple[Series, bytes] | None = None


def _packed(minutes: Series) -> bytes:
    """Compress *minutes*: published every second, they change every minute."""
    global _packed_last  # noqa: PLW0603 (a cache of one)
    known = _packed_last
    if known is None or known[0].lines is not minutes.lines or known[0].end != minutes.end:
        packed = zlib.compress(pickle.dumps(minutes, protocol=pickle.HIGHEST_PROTOCOL), 1)
        known = _packed_last = minutes, packed
    return known[1]


def policy_state(core: Core, watcher: PolicyWatcher | None) -> dict[str, Any]:
    """The state of the policy in force."""
    state = None if watcher is None else watcher.state
    return {
        "revision": None if state is None else state.revision,
        "rules": len(core.rules.in_force.policy.rules),
        "current": state is None or state.is_current,
        "stale": state is not None and state.is_stale,
        "trouble": None if state is None else state.trouble,
        "problems": 0 if state is None else len(state.problems or ()),
        "failures": 0 if state is None else state.failures,
    }


def store_state(
    url: str,
    trouble: tuple[str, ...],
    samples: Samples,
    outage: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """The state of the store at *url*, from the *samples* of metrics; *trouble* says what is wrong
    with it, *outage* why its circuit is open and for how many nanoseconds."""
    breaker = _largest(samples.get("store_breaker_state", ()))
    fail_mode = int(_largest(samples.get("fail_mode_active", ())))
    errors: Counter[str] = Counter()
    for _, labels, value in samples.get("store_errors", ()):
        errors[dict(labels).get("reason", "")] += int(value)
    is_failing = bool(trouble or fail_mode or breaker)
    return {
        "url": url,
        "state": "open" if breaker >= OPEN else "failing" if is_failing else "ok",
        "trouble": list(trouble),
        "reason": None if outage is None else outage[0],
        "open_for": None if outage is None else outage[1] / SECOND,
        "errors": dict(errors),
        "calls": int(sum(value for _, _, value in samples.get("store_calls", ()))),
        "fail_mode": fail_mode,
    }


OPEN: Final = 2
"""The value of the metric when the circuit is open."""

_GATES: Final = ("gate_waiting", "gate_in_flight", "gate_slots", "gate_wait_seconds")


def _largest(samples: Iterable[Sample]) -> float:
    return max((value for _, _, value in samples), default=0.0)


def queues_in(samples: Samples) -> dict[str, list[float]]:
    """The queues at each gate, from the *samples* of metrics."""
    found: dict[str, list[float]] = {}
    for place, name in enumerate(_GATES):
        for _, labels, value in samples.get(name, ()):
            row = found.setdefault(dict(labels).get("gate", ""), [0.0] * len(_GATES))
            row[place] = value
    return found


def top_keys(core: Core, decisions: DecisionRecorder) -> TopKeys:
    """The busiest keys now."""
    now_ns = monotonic_ns()  # the clock of the decision recorder
    busiest, denied = (
        _hottest(sketch.top(_ALL, now_ns)) for sketch in (decisions.busiest, decisions.most_denied)
    )
    return TopKeys(busiest, denied, hot_keys(core, MAX_KEYS), bounds(core))


def _hottest(found: Iterable[Heavy]) -> list[KeyRow]:
    """The hottest keys of all rules, and some of each rule."""
    seen: Counter[str] = Counter()
    rows = []
    for place, one in enumerate(found):
        seen[one.group] += 1
        if place < MAX_KEYS or seen[one.group] <= MAX_KEYS_OF_RULE:
            rows.append(_key_row(one.group, one))
    return rows


def hot_keys(core: Core, count: int) -> list[KeyRow]:
    """The *count* keys that the store is asked for most."""
    store = core.rules.engine.store
    if not isinstance(store, LeasedStore):
        return []
    rules = _rules_by_group(core)
    return [_key_row(rules.get(one.group), one) for one in store.hot_keys(count)]


def bounds(core: Core) -> list[tuple[str | None, int, int]]:
    """By rule: the number of nodes with leases, and the maximum overshoot in units."""
    store = core.rules.engine.store
    if not isinstance(store, LeasedStore):
        return []
    rules = _rules_by_group(core)
    return [(rules.get(one.group), one.holders, one.bound) for one in store.bounds()]


def _key_row(rule: str | None, heavy: Heavy) -> KeyRow:
    least, most = heavy.per_second, heavy.per_second + heavy.error
    return rule, heavy.key, round(least, 1), round(most, 1)


def _rules_by_group(core: Core) -> dict[str, str]:
    """The rule of each group of counters."""
    return {
        group: rule.id
        for rule in core.rules.in_force.policy.rules
        for limits in rule.limits.values()
        for group in groups_of(core.namespace, rule.id, len(limits))
    }
