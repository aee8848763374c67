"""The measures of a process in a registry of `prometheus_client`, for apps that have one.

REGISTRY.register(HeadgateCollector())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import not_installed
from headgate.observability.metrics import MEASURES

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise not_installed("prometheus", error) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.observability.metrics import Measures


class HeadgateCollector(Collector):
    """Tells a registry all that *measures* has, as it is when the registry is asked."""

    def __init__(self, measures: Measures = MEASURES) -> None:
        self._measures = measures

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is to tell is known only when it is there."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All measures; those that have said nothing yet are left out."""
        for told in self._measures.told():
            metric = Metric(told.name, told.help, told.kind)
            for end, labels, value in told.samples:
                metric.add_sample(told.name + end, dict(labels), value)
            yield metric
