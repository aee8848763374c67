"""Metrics, decision records, the denial log, tracing and hot keys.

Read `journal` first: every decision is recorded there. `metrics` has the counters
and their text format (`metrics_text`, `asgi_metrics`), `denials` the log, `prometheus` and `otel`
the exporters.
"""

from headgate.observability.denials import log_denials, pseudonyms
from headgate.observability.journal import JOURNAL, Decided, Journal, Said
from headgate.observability.metrics import (
    MEASURES,
    Counter,
    Measures,
    asgi_metrics,
    metrics_text,
    wsgi_metrics,
)

__all__ = [
    "JOURNAL",
    "MEASURES",
    "Counter",
    "Decided",
    "Journal",
    "Measures",
    "Said",
    "asgi_metrics",
    "log_denials",
    "metrics_text",
    "pseudonyms",
    "wsgi_metrics",
]
