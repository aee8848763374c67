"""What is wrong with a trace: all of it, or single lines."""

from __future__ import annotations

from headgate.errors import HeadgateError


class TraceError(HeadgateError, ValueError):
    """A trace that cannot be read, or in which nothing is understood."""


class BrokenLineError(HeadgateError, ValueError):
    """A line that is not understood; the rest of the trace may well be."""
