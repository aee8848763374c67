"""The state of one worker: its policy, its store, the busiest keys."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.service.live.snapshot import State
from headgate.stores.base import groups_of
from headgate.stores.layers.leases import LeasedStore
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.control.watcher import PolicyWatcher
    from headgate.observability import DecisionRecorder
    from headgate.observability.metrics import MetricSnapshot
    from headgate.observability.sketches import Heavy
    from headgate.policy.model import Policy
    from headgate.service.core import Core
    from headgate.service.live.snapshot import KeyRow

MAX_KEYS: Final = 40
"""Keys of each kind per worker: more than are shown, because workers have different keys."""

_GATES: Final = ("gate_waiting", "gate_in_flight", "gate_slots", "gate_wait_seconds")
_PREFIX: Final = "headgate_"


class TopKeys(NamedTuple):
    """The busiest keys, the most denied ones, and those that the store is asked for most."""

    busiest: list[KeyRow]
    refused: list[KeyRow]
    hot: list[KeyRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """Sources of the state. *store* is its URL without a password, *trouble* describes problems."""

    core: Core
    watcher: PolicyWatcher | None
    journal: DecisionRecorder
    store: str
    trouble: Callable[[], tuple[str, ...]]
    worker: int
    began_ns: int

    def state(
        self, *, metrics: Iterable[MetricSnapshot], latency: list[int], seen_ns: int, keys: TopKeys
    ) -> State:
        """The current state, from the metrics *metrics*."""
        values = _Values(metrics)
        return State(
            worker=self.worker,
            at=self.core.clock() / SECOND,
            seen_ns=seen_ns,
            began=self.began_ns / SECOND,
            policy=self._policy(),
            store=self._store(values),
            factor=float(self.core.rules.in_force.scale.factor),
            requests=[self.journal.requests[False][0], self.journal.admitted_requests()],
            latency=latency,
            cells=[],  # from the recorder, as numbers
            rates=[],
            busiest_keys=keys.busiest,
            refused_keys=keys.refused,
            hot_keys=keys.hot,
            bounds=bounds(self.core),
            queues=values.queues(),
        )

    def keys(self) -> TopKeys:
        """The busiest keys now."""
        now_ns = monotonic_ns()  # the journal's clock
        return TopKeys(
            self._rows(self.journal.busiest.top(MAX_KEYS, now_ns)),
            self._rows(self.journal.refused.top(MAX_KEYS, now_ns)),
            hot_keys(self.core, MAX_KEYS),
        )

    def rules(self) -> list[tuple[str, str, str | None]]:
        """Id, mode, and the rule it is a candidate of, for each rule in force."""
        policy = self.core.rules.in_force.policy
        return [(rule.id, rule.mode, rule.candidate_of) for rule in policy.rules]

    def _rows(self, heavy: Iterable[Heavy]) -> list[KeyRow]:
        return [key_row(self.core, one.group, one) for one in heavy]

    def _policy(self) -> dict[str, Any]:
        rules = len(self.core.rules.in_force.policy.rules)
        if self.watcher is None:
            return {"revision": None, "rules": rules, "current": True, "stale": False,
                    "trouble": None, "problems": 0, "failures": 0}  # fmt: skip
        state = self.watcher.state
        return {
            "revision": state.revision,
            "rules": rules,
            "current": state.is_current,
            "stale": state.is_stale,
            "trouble": state.trouble,
            "problems": len(state.problems or ()),
            "failures": state.failures,
        }

    def _store(self, values: _Values) -> dict[str, Any]:
        trouble = self.trouble()
        breaker = values.most("store_breaker_state")
        fail_mode = int(values.most("fail_mode_active"))
        is_failing = bool(trouble or fail_mode or breaker)
        return {
            "url": self.store,
            "state": "open" if breaker >= OPEN else "failing" if is_failing else "ok",
            "trouble": list(trouble),
            "errors": values.by_label("store_errors", "reason"),
            "calls": int(values.total("store_calls")),
            "fail_mode": fail_mode,
        }


OPEN: Final = 2
"""The value of the metric when the circuit is open."""


class _Values:
    """Metrics by name, without the prefix."""

    def __init__(self, metrics: Iterable[MetricSnapshot]) -> None:
        self._samples = {one.name.removeprefix(_PREFIX): one.samples for one in metrics}

    def total(self, name: str) -> float:
        return sum(value for _, _, value in self._samples.get(name, ()))

    def most(self, name: str) -> float:
        return max((value for _, _, value in self._samples.get(name, ())), default=0.0)

    def by_label(self, name: str, label: str) -> dict[str, int]:
        """The totals for each value of *label*."""
        found: dict[str, int] = {}
        for _, labels, value in self._samples.get(name, ()):
            by = dict(labels).get(label, "")
            found[by] = found.get(by, 0) + int(value)
        return found

    def queues(self) -> list[tuple[str, float, float, float, float]]:
        """The queues by gate."""
        by_gate: dict[str, list[float]] = {}
        for place, name in enumerate(_GATES):
            for _, labels, value in self._samples.get(name, ()):
                row = by_gate.setdefault(dict(labels).get("gate", ""), [0.0] * len(_GATES))
                row[place] = value
        return [(gate, *row) for gate, row in sorted(by_gate.items())]  # type: ignore[misc] # four


def hot_keys(core: Core, count: int) -> list[KeyRow]:
    """The *count* keys that the store is asked for most."""
    store = core.rules.engine.store
    if not isinstance(store, LeasedStore):
        return []
    rules = _GROUPS.of(core)
    return [key_row(core, rules.get(one.group), one) for one in store.hot_keys(count)]


def bounds(core: Core) -> list[tuple[str | None, int, int]]:
    """By rule: the number of nodes with leases, and the maximum overshoot in units."""
    store = core.rules.engine.store
    if not isinstance(store, LeasedStore):
        return []
    rules = _GROUPS.of(core)
    return [(rules.get(one.group), one.holders, one.bound) for one in store.bounds()]


def key_row(core: Core, rule: str | None, heavy: Heavy) -> KeyRow:
    """Rule, displayed key, lower and upper bound of requests per second."""
    least, most = heavy.per_second, heavy.per_second + heavy.error
    return rule, core.show_key(heavy.key), round(least, 1), round(most, 1)


class _Groups:
    """The rules of groups of counters, cached per policy."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._namespace = ""
        self._rules: dict[str, str] = {}

    def of(self, core: Core) -> dict[str, str]:
        policy = core.rules.in_force.policy
        if policy is not self._policy or core.namespace != self._namespace:
            self._policy, self._namespace = policy, core.namespace
            self._rules = {
                group: rule.id
                for rule in policy.rules
                for limits in rule.limits.values()
                for group in groups_of(core.namespace, rule.id, len(limits))
            }
        return self._rules


_GROUPS: Final = _Groups()
