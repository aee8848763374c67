"""Decisions that Envoy makes by itself and counts: rules with `decide: local`.

The process that runs Envoy reads its counters every few seconds, and puts totals that never go back
in the slot after those of the workers. The first worker records their growth.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.observability.decision_recorder import ENVOY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.observability import DecisionRecorder
    from headgate.observability.decision_recorder import Outcome
    from headgate.service.live.shared_snapshots import SharedSnapshots

    Totals = Mapping[str, tuple[int, int]]
    """By rule: requests that Envoy allowed and denied."""

_OUTCOMES: Final[tuple[Outcome, Outcome]] = ("allowed", "denied")


class EnvoyTotals:
    """Totals of counters that begin at 0 again with each Envoy."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        self.totals: dict[str, tuple[int, int]] = {}

    def add(self, counts: Totals) -> None:
        """Add the growth of *counts* since the last call."""
        for rule, now in counts.items():
            before, total = self._known.get(rule, (0, 0)), self.totals.get(rule, (0, 0))
            grown = [new - old if new >= old else new for new, old in zip(now, before, strict=True)]
            self.totals[rule] = total[0] + grown[0], total[1] + grown[1]
            self._known[rule] = now


def write_totals(shared_snapshots: SharedSnapshots, totals: Totals) -> None:
    """Put *totals* where the first worker reads them. Raises `SharedSnapshotError`."""
    shared_snapshots.write(shared_snapshots.count, json.dumps(totals).encode())


class EnvoyCounts:
    """Records the growth of the totals in *shared_snapshots* in *decisions*.

    A worker that *is_successor* of another one leaves out what was counted before it.
    """

    def __init__(
        self, shared_snapshots: SharedSnapshots, decisions: DecisionRecorder, *, is_successor: bool
    ) -> None:
        self._shared = shared_snapshots
        self._decisions = decisions
        self._known: dict[str, list[int]] = self._read() if is_successor else {}

    def record(self) -> None:
        """Record what Envoy has counted since the last call."""
        totals = self._read()
        for rule, counts in totals.items():
            before = self._known.get(rule, [0, 0])
            for outcome, count, known in zip(_OUTCOMES, counts, before, strict=True):
                self._decisions.cell(rule, outcome, ENVOY)[0] += max(0, count - known)
        self._known = totals

    def _read(self) -> dict[str, list[int]]:
        data = self._shared.read(self._shared.count)
        found: dict[str, list[int]] = {} if data is None else json.loads(data)
        return found
