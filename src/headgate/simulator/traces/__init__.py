"""Traces of real traffic: tables, JSON lines and access logs.

Read `trace` first: files and order. `formats` splits lines into values, `columns` makes requests of
them.
"""

from headgate.simulator.traces.columns import TraceError
from headgate.simulator.traces.formats import FORMATS
from headgate.simulator.traces.trace import Trace, open_trace

__all__ = ["FORMATS", "Trace", "TraceError", "open_trace"]
