"""Metrics, decision records, the denial log, tracing and hot keys.

Read `decision_recorder` first: every decision is recorded there. `metrics` has the counters
and their text format (`metrics_text`, `asgi_metrics`), `denials` the log, `prometheus` and `otel`
the exporters.
"""

from headgate.observability.decision_recorder import (
    RECORDER,
    DecisionRecord,
    DecisionRecorder,
    RuleRecord,
)
from headgate.observability.denials import log_denials, pseudonyms
from headgate.observability.metrics import (
    METRICS,
    Counter,
    MetricRegistry,
    asgi_metrics,
    metrics_text,
    wsgi_metrics,
)

__all__ = [
    "METRICS",
    "RECORDER",
    "Counter",
    "DecisionRecord",
    "DecisionRecorder",
    "MetricRegistry",
    "RuleRecord",
    "asgi_metrics",
    "log_denials",
    "metrics_text",
    "pseudonyms",
    "wsgi_metrics",
]
