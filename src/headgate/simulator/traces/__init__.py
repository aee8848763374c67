"""Traces of real traffic: tables, JSON lines and access logs.

Read `trace` first: files, detection, order. `rows` and `access_logs` turn lines into requests.
"""

from headgate.simulator.traces.formats import TraceError
from headgate.simulator.traces.trace import FORMATS, Trace, open_trace

__all__ = ["FORMATS", "Trace", "TraceError", "open_trace"]
