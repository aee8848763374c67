"""The metrics of a process in a registry of `prometheus_client`, for apps that have one.

REGISTRY.register(HeadgateCollector())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import not_installed
from headgate.observability.metrics import METRICS

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise not_installed("prometheus", error) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.observability.metrics import MetricRegistry


class HeadgateCollector(Collector):
    """A collector of all metrics in *measures*."""

    def __init__(self, measures: MetricRegistry = METRICS) -> None:
        self._measures = measures

    def describe(self) -> Iterable[Metric]:
        """Return nothing: metrics are known when they are first used."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics that have samples."""
        for snapshot in self._measures.snapshot():
            metric = Metric(snapshot.name, snapshot.help, snapshot.kind)
            for suffix, labels, value in snapshot.samples:
                metric.add_sample(snapshot.name + suffix, dict(labels), value)
            yield metric
