"""Which format a trace is in: said, or found out from its first lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.simulator.traces.access_logs import EnvoyLog, NginxLog, is_envoy, is_nginx
from headgate.simulator.traces.json_lines import JsonLines
from headgate.simulator.traces.problems import BrokenLineError, TraceError
from headgate.simulator.traces.tables import Table, is_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.traces.formats import Format
    from headgate.simulator.traces.names import Wanted

FORMATS: Final = ("csv", "jsonl", "nginx", "envoy")
EXPECTED: Final = (
    "expected CSV with a header row that names a time, JSON lines with a time, or an access log of "
    "nginx or Envoy"
)
_LOOKED_AT: Final = 50


def format_of(
    lines: Sequence[bytes], wanted: Wanted | None, *, name: str, said: str | None = None
) -> tuple[Format, int]:
    """What reads a trace that begins with *lines*, and how many of them it has no need of.

    *name* is what the trace is called in errors. Raises `TraceError` if it is in no format.
    """
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise TraceError(f"{name} is empty; {EXPECTED}")
    kind = said or _found_out(lines[first:][:_LOOKED_AT])
    if kind == "csv":
        try:
            return Table(lines[first], wanted), first + 1
        except BrokenLineError as error:
            raise TraceError(f"{name} has no header row: {error}") from error
    if kind is None:
        raise TraceError(f"nothing in {name} is understood; {EXPECTED}")
    if kind == "jsonl":
        return JsonLines(wanted), first
    return NginxLog(wanted) if kind == "nginx" else EnvoyLog(wanted), first


def _found_out(lines: Sequence[bytes]) -> str | None:
    for line in lines:
        if line.lstrip().startswith(b"{"):
            return "jsonl"
        if is_nginx(line):
            return "nginx"
        if is_envoy(line):
            return "envoy"
    return "csv" if is_header(lines[0]) else None
