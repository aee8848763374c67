"""Traces of real traffic: tables, JSON lines and access logs.

trace (files, detection, order) -> rows, access_logs (lines to requests) -> formats
"""

from headgate.simulator.traces.formats import TraceError
from headgate.simulator.traces.trace import FORMATS, Trace, open_trace

__all__ = ["FORMATS", "Trace", "TraceError", "open_trace"]
