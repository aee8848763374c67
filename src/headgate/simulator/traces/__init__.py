"""Traces of real traffic: tables, JSON lines and access logs.

files (bytes, compression) -> detection -> a format (lines to requests) -> trace (in order)
"""

from headgate.simulator.traces.detection import FORMATS
from headgate.simulator.traces.problems import TraceError
from headgate.simulator.traces.trace import Trace, open_trace

__all__ = ["FORMATS", "Trace", "TraceError", "open_trace"]
