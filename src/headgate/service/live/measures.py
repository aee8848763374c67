"""The service's own metrics: its version and the state of its policy."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.observability import METRICS
from headgate.observability.metrics import MetricSnapshot, text_of
from headgate.policy.loader import policy_to_data
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.control.watcher import PolicyWatcher
    from headgate.observability import MetricRegistry
    from headgate.observability.metrics import Labels
    from headgate.policy.model import Policy
    from headgate.rule_engine import AsyncRuleEngine
    from headgate.service.live.recorder import Counted, Name
    from headgate.service.live.snapshot import Family, Snapshot


_DIGEST_BYTES: Final = 6
"""Few enough for a float to represent exactly."""


class ServiceMeasures:
    """The measures of a worker that began at *began_ns* and decides by *engine*.

    *watcher* reads the rules, *envoy* the configuration of envoyproxy/ratelimit.
    """

    def __init__(
        self,
        engine: AsyncRuleEngine,
        *,
        began_ns: int,
        watcher: PolicyWatcher | None = None,
        envoy: PolicyWatcher | None = None,
        measures: MetricRegistry = METRICS,
    ) -> None:
        self._engine = engine
        self._began_ns = began_ns
        self._watcher = watcher
        self._watchers = [one for one in (watcher, envoy) if one is not None]
        self._digested: tuple[Policy, float] | None = None
        for name, text, read in (
            ("policy_revision", "The revision in force; 0 if there is none.", self.revision),
            ("policy_digest", "Made of the policy in force: equal where that is.", self.digest),
            ("policy_rules", "Rules in force.", self.rules),
            ("policy_stale", "1 if where the policy comes from cannot be asked.", self.stale),
            ("policy_refused", "1 if a newer policy cannot be put in force.", self.refused),
            ("start_time_seconds", "When it began, in seconds since the epoch.", self.began),
        ):
            measures.gauge(name, text, read)
        text = "Always 1; the version is a label."
        measures.gauge("build_info", text, self.one, version=__version__)

    def revision(self) -> float:
        return 0 if self._watcher is None else self._watcher.state.revision or 0

    def digest(self) -> float:
        """A number that is equal wherever the policy is equal. (A revision may be counted by each
        process for itself.)"""
        policy = self._engine.in_force.policy
        if self._digested is None or self._digested[0] is not policy:
            text = json.dumps(policy_to_data(policy), sort_keys=True)
            number = int.from_bytes(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest())
            self._digested = policy, float(number)
        return self._digested[1]

    def rules(self) -> float:
        return len(self._engine.in_force.policy.rules)

    def stale(self) -> float:
        return float(any(one.state.is_stale for one in self._watchers))

    def refused(self) -> float:
        return float(any(one.state.problems is not None for one in self._watchers))

    def began(self) -> float:
        return self._began_ns / SECOND

    def one(self) -> float:
        return 1.0


# The metrics of several workers as one text: the reply of `/metrics`.


DECISIONS: Final = "decisions"
"""The metric whose samples are the cells: published as numbers and formatted here."""

_NAME: Final = f"headgate_{DECISIONS}"


class Writer:
    """Formats metrics of workers; caches the names and labels of their many cells."""

    def __init__(self) -> None:
        self._begun: dict[Labels, tuple[list[Name], list[str]]] = {}

    def text(self, workers: Iterable[tuple[Snapshot, Labels, bool]]) -> str:
        """The Prometheus text of all workers: snapshot, labels of the worker, and whether it is
        alive. Of one that is not, only counters are included."""
        by_name: dict[str, list[tuple[Family, str]]] = {}
        for snapshot, marks, is_here in workers:
            for family in snapshot.families():
                if is_here or family.kind != "gauge":
                    body = family.body
                    if family.name == _NAME:
                        body = self._cells(marks, snapshot.counted())
                    by_name.setdefault(family.name, []).append((family, body))
        parts: list[str] = []
        for _, together in sorted(by_name.items()):
            if any(body for _, body in together):
                parts += [together[0][0].head, "\n", *(body for _, body in together)]
        return "".join(parts)

    def _cells(self, marks: Labels, counted: Counted) -> str:
        names, begun = self._begun.get(marks, ([], []))
        if names != counted.names:
            begun = _begun(marks, counted.names)
            self._begun[marks] = counted.names, begun
        return "".join([f"{start}{n}\n" for start, n in zip(begun, counted.counts, strict=True)])


def _begun(marks: Labels, names: Iterable[Name]) -> list[str]:
    """The lines of cells without their values."""
    samples = [
        ("_total", (*marks, ("outcome", outcome), ("rule", rule), ("source", source)), 0.0)
        for rule, outcome, source in names
    ]
    _, _, *lines, _ = text_of([MetricSnapshot(_NAME, "counter", "", tuple(samples))]).split("\n")
    return [line.removesuffix("0") for line in lines]
