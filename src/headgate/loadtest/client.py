"""Send the load at an even rate, and record the result of each request.

The schedule is open: the time of a request does not depend on the responses to others, so a server
that stalls still gets the requests that real callers would send. A request that cannot be sent in
time, because all connections are in use, is sent late; both times are recorded. Late requests are
dropped some seconds after the end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import not_installed
from headgate.loadtest.answers import Reply, retry_after_fault
from headgate.loadtest.record import Record, Result
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import ClientSession

    from headgate.loadtest.answers import AnswerReader
    from headgate.loadtest.target import Load, Target

# Each lane of a load test has its own connection. A common pool would use few connections if
# responses come fast, and all requests would reach the same worker of a server: workers that count
# separately, a common mistake, would go unnoticed.

try:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from multidict import CIMultiDict
    from yarl import URL
except ModuleNotFoundError as error:
    raise not_installed("loadtest", error) from error


LONGEST_ANSWER_S: Final = 10.0
"""A request without a response after this time has failed."""

LARGEST_BODY: Final = 65_536
"""The bytes of a denial that are read."""

FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)
"""The errors of requests without a response."""

_LARGEST_IGNORED: Final = 1_048_576
"""The most bytes that are read and discarded to keep the connection."""

_LONGEST_BODY_S: Final = 1.0
"""The most time that reading a body may take."""

_IDLE_S: Final = 1.5
"""The time that an idle connection is kept; many servers close theirs after 2 or 5."""

_REASONS: Final = (
    (aiohttp.ServerDisconnectedError, "connection closed without a response"),
    (aiohttp.ClientResponseError, "the response is not HTTP, or its head is too long"),
    (aiohttp.ClientConnectorCertificateError, "the certificate is not trusted (--insecure)"),
    (aiohttp.ClientConnectorSSLError, "no TLS"),
)


def _call(target: Target) -> dict[str, Any]:
    """The arguments of a request to *target*."""
    headers = CIMultiDict(target.headers)
    headers.setdefault("User-Agent", "headgate-loadtest")
    headers.setdefault("Accept-Encoding", "identity")  # denials have to be read
    if target.data is not None:
        is_json = target.data.lstrip().startswith(("{", "["))
        kind = "application/json" if is_json else "application/octet-stream"
        headers.setdefault("Content-Type", kind)
    return {
        "method": target.method,
        "url": URL(target.url),
        "headers": headers,
        "data": None if target.data is None else target.data.encode(),
        "allow_redirects": False,
    }


def session_to(addresses: Sequence[str], *, is_verified: bool) -> aiohttp.ClientSession:
    """Return a session with one connection, to one of *addresses*.

    It keeps no cookies and ignores variables such as HTTP_PROXY. If *is_verified*, certificates
    must be valid.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=1,
            resolver=_Known(addresses),
            ssl=is_verified,
            keepalive_timeout=_IDLE_S,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=LONGEST_ANSWER_S),
        auto_decompress=False,
    )


async def _body(response: aiohttp.ClientResponse, *, is_read: bool) -> bytes:
    """Read the body of *response* and return its beginning if *is_read*, otherwise nothing.

    Closes the connection if the body is too long or takes too long.
    """
    content = response.content
    most = LARGEST_BODY if is_read else _LARGEST_IGNORED
    kept = b""
    try:
        async with asyncio.timeout(_LONGEST_BODY_S):
            size = 0
            while size < most and not content.at_eof():
                chunk = await content.readany()
                size += len(chunk)
                kept += chunk if is_read else b""
    except FAILURES:  # the head is enough
        response.close()
        return b""
    if not content.at_eof():
        response.close()
    return kept[:LARGEST_BODY]


class _Known(AbstractResolver):
    """A resolver with the known *addresses* of the one host."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing."""


def failure_of(error: BaseException) -> str:
    """Return the reason why there was no response."""
    if isinstance(error, TimeoutError):
        return f"no response within {LONGEST_ANSWER_S:g} s"
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return type(error).__name__


GRACE_NS: Final = 5 * SECOND
"""The time after the end in which late requests are sent."""

_DENIALS: Final = (429, 503)
"""Statuses whose body is read."""


class Sender:
    """A sender of *load* to *addresses*, which are those of *targets*, one for each caller.

    Late requests are sent until *grace_ns* after the end. `record` has the results at any time,
    also if sending is cancelled.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        addresses: Sequence[str],
        load: Load,
        reader: AnswerReader,
        *,
        is_verified: bool = True,
        grace_ns: int = GRACE_NS,
    ) -> None:
        self.record = Record()
        self._grace_ns = grace_ns
        self._addresses = addresses
        self._load = load
        self._reader = reader
        self._is_verified = is_verified
        self._calls = [_call(target) for target in targets]
        self._next = 0
        self._started_by = [0] * len(targets)
        self._began_ns = 0

    def progress(self) -> tuple[float, str]:
        """The share of the time that has passed, and the figures so far in words."""
        passed_ns = time.monotonic_ns() - self._began_ns if self._began_ns else 0
        responses = f"{len(self.record):,} of {self._load.requests:,} responses"
        share = min(1.0, passed_ns / self._load.duration_ns)
        return share, f"{responses}, {self.record.count(Result.ALLOWED):,} allowed"

    async def run(self) -> None:
        """Send all that can be sent in time, and wait for the responses."""
        self._began_ns, busy_ns = time.monotonic_ns(), time.process_time_ns()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_lanes(self._load)):
                    group.create_task(self._lane())
            self.record.unsent = self._load.requests - self._next
        finally:
            passed_ns = max(time.monotonic_ns() - self._began_ns, 1)
            self.record.busy = (time.process_time_ns() - busy_ns) / passed_ns

    async def _lane(self) -> None:
        """Send one request after the other on one connection, none before it is due.

        Lanes alternate, so that all connections are used equally.
        """
        load, requests = self._load, self._load.requests
        ends_ns = self._began_ns + load.duration_ns + self._grace_ns
        async with session_to(self._addresses, is_verified=self._is_verified) as session:
            while self._next < requests and time.monotonic_ns() <= ends_ns:
                place = self._next
                self._next += 1
                due_ns = self._began_ns + load.due_ns(place)
                early_ns = due_ns - time.monotonic_ns()
                if early_ns > 0:
                    await asyncio.sleep(early_ns / SECOND)
                caller = place % load.callers
                await self._one(session, caller, due_ns)

    async def _one(self, session: ClientSession, caller: int, due_ns: int) -> None:
        record = self.record
        self._started_by[caller] += 1
        sent_ns = time.monotonic_ns()
        try:
            async with session.request(**self._calls[caller]) as response:
                answered_ns = time.monotonic_ns()
                status = response.status
                body = await _body(response, is_read=status in _DENIALS)
                reply = Reply(status, response.headers, body)
        except FAILURES as error:
            record.add(caller, (due_ns, sent_ns, time.monotonic_ns()), Result.FAILED)
            record.failures[failure_of(error)] += 1
            return
        read = self._reader.read(reply)
        record.add(caller, (due_ns, sent_ns, answered_ns), read.result)
        record.statuses[status] += 1
        self._record(caller, reply, read.result, read.by)

    def _record(self, caller: int, reply: Reply, result: Result, by: str) -> None:
        record, headers = self.record, reply.headers
        match result:
            case Result.DENIED:
                fault = retry_after_fault(headers)
                record.without_retry_after += fault == "missing"
                record.with_bad_retry_after += fault == "bad"
            case Result.ELSEWHERE:
                record.elsewhere[by] += 1
            case Result.FAILED:
                record.failures[by] += 1
        if caller not in record.used_before:
            self._record_used(caller, headers, result)

    def _record_used(self, caller: int, headers: Mapping[str, str], result: Result) -> None:
        """Record how much of the limit was used before this caller's first request. It follows from
        the headers of an early response; a denied request used nothing."""
        used, cost = self._reader.used(headers), self._reader.cost
        taken = cost if result is Result.ALLOWED else 0
        others = (self._started_by[caller] - 1) * cost
        self.record.used_at_most[caller] = max(0, used - taken)
        self.record.used_before[caller] = max(0, used - taken - others)


def _lanes(load: Load) -> int:
    """Return the number of connections, such that each caller uses all of them in turn."""
    most = min(load.connections, load.requests)
    return next(count for count in range(most, 0, -1) if gcd(count, load.callers) == 1)
