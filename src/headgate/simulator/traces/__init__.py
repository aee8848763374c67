"""Traces of real traffic: tables, JSON lines and access logs.

files (bytes, compression) -> detection -> a format (lines to requests) -> trace (in order)
"""

from headgate.simulator.traces.formats import TraceError
from headgate.simulator.traces.trace import FORMATS, Trace, open_trace

__all__ = ["FORMATS", "Trace", "TraceError", "open_trace"]
