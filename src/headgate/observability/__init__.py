"""What can be seen from outside: measures that count and tell, and the journal of decisions.

- `metrics_text`, `asgi_metrics`, `wsgi_metrics`: all measures as Prometheus reads them;
- `JOURNAL.listen`: hear of each decision;
- `log_denials`: a few refusals a second in the log;
- `prometheus.HeadgateCollector`, `otel.instrument`: for those who have the packages.
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
