"""Access logs of nginx (common, combined) and Envoy in their default formats.

    1.2.3.4 - ann [16/Nov/2026:19:06:40 +0000] "GET /a?b HTTP/1.1" 200 612 "referer" "agent" 0.012
    [2026-11-16T19:06:40.310Z] "GET /a HTTP/1.1" 200 - 0 5 9 8 "1.2.3.4" "agent" "id" "host" "..."

A number after these fields of an nginx log is read as `$request_time`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headgate.simulator.traces.formats import Format, InvalidLineError
from headgate.simulator.traces.rows import address_of, path_of, request_line
from headgate.simulator.traces.times import iso8601, of_access_logs, took_ns
from headgate.simulator.traffic import SimulatedRequest
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.simulator.traces.formats import Parsed, Wanted

_TEXT: Final = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
"""Text between quotes, in a form that takes a third of the time."""
_NGINX: Final = re.compile(rb"(\S+) \S+ [^\[]*\[([^\]]{20,26})\] %b \d{3} (?:\d+|-)(.*)" % _TEXT)
_AFTER: Final = re.compile(rb'(?: %b %b)?(?:.*?[ "=](\d+\.\d{3})(?=[ "]|$))?' % (_TEXT, _TEXT))
_ENVOY: Final = re.compile(
    rb'\[([^\]]+)\] "([^"]*)" \d+ \S+ (?:\S+ \S+ "[^"]*" )?'  # the optional part is of Istio
    rb'\d+ \d+ (\d+|-) (?:\d+|-) "([^"]*)" "([^"]*)" "([^"]*)" "([^"]*)"'
)
_NOTHING: Final = b"-"

Named = tuple[tuple[str, bytes], ...]


class NginxLog(Format):
    """The common or combined log format of nginx and Apache."""

    name = "nginx"
    has_whole_seconds = True

    def __init__(self, wanted: Wanted | None) -> None:
        super().__init__()
        self._when = of_access_logs()
        self._has_agent = wanted is None or "user-agent" in wanted
        self._has_referer = wanted is None or "referer" in wanted

    def parse(self, line: bytes) -> Parsed:
        found = _NGINX.match(line)
        if found is None:
            raise InvalidLineError("not a line of an nginx access log")
        address, time, request, rest = found.groups()
        target = request.partition(b"?")[0]
        if not rest:
            return self._when(time), (address, target), None
        after = _AFTER.match(rest)
        referer, agent, took = (None, None, None) if after is None else after.groups()
        signature = (
            address,
            target,
            referer if self._has_referer else None,
            agent if self._has_agent else None,
        )
        return self._when(time), signature, took_ns(took, SECOND) if took else None

    def request(self, signature: Any) -> SimulatedRequest:
        address, request, *others = signature
        named = zip(("referer", "user-agent"), others, strict=False)
        return _request(request, address, tuple((name, value) for name, value in named if value))


class EnvoyLog(Format):
    """The default log of Envoy."""

    name = "envoy"

    def __init__(self, wanted: Wanted | None) -> None:
        super().__init__()
        self._when = iso8601()
        self._has_agent = wanted is None or "user-agent" in wanted
        self._has_id = wanted is not None and "x-request-id" in wanted

    def parse(self, line: bytes) -> Parsed:
        found = _ENVOY.match(line)
        if found is None:
            raise InvalidLineError("not a line of an Envoy access log")
        time, request, took, forwarded, agent, request_id, host = found.groups()
        signature = (
            request.partition(b"?")[0],
            forwarded,
            agent if self._has_agent else None,
            request_id if self._has_id else None,
            host,
        )
        return self._when(time), signature, took_ns(took, MILLISECOND)

    def request(self, signature: Any) -> SimulatedRequest:
        request, forwarded, agent, request_id, host = signature
        before = forwarded.rpartition(b",")[0]
        named = (
            ("x-forwarded-for", before),
            ("user-agent", agent),
            ("x-request-id", request_id),
            ("host", host),
        )
        return _request(request, forwarded, tuple((name, value) for name, value in named if value))


def is_nginx(line: bytes) -> bool:
    """Return True if *line* is of an nginx access log."""
    return _NGINX.match(line) is not None


def is_envoy(line: bytes) -> bool:
    """Return True if *line* is of an Envoy access log."""
    return _ENVOY.match(line) is not None


def _request(request: bytes, address: bytes, named: Named) -> SimulatedRequest:
    method, target = request_line(_text(request))
    headers = tuple((name, _text(value)) for name, value in named if value != _NOTHING)
    return SimulatedRequest(method.upper(), path_of(target), headers, address_of(_text(address)))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
