"""Sends the load, evenly and whatever comes back, and records what becomes of each request.

The schedule is open: a request is due at its time however long the ones before it take, so that a
server that stalls is not spared the requests that real callers would have sent meanwhile. A request
that cannot go out in time, because all connections are in use, is sent late, and both its time and
the time it was due at are on record. Some seconds after the end of the time nothing more is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from math import gcd
from typing import TYPE_CHECKING, Final

from headgate.errors import not_installed
from headgate.loadtest.answers import Reply, retry_after_fault
from headgate.loadtest.record import Fate, Record
from headgate.responses.debug import DECISION
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import ClientSession

    from headgate.loadtest.answers import AnswerReader
    from headgate.loadtest.options import Load, Target


# Connections to the server under test, and to nothing else; and what is read from them.
#
# Each lane of a load test has a connection of its own. One pool for all would use few of them, if
# answers come fast, and all requests would reach the same worker of a server: workers that count
# apart, the classical mistake, would go unnoticed.


try:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from multidict import CIMultiDict
    from yarl import URL
except ModuleNotFoundError as error:
    raise not_installed("loadtest", error) from error


LONGEST_ANSWER_S: Final = 10.0
"""A request without an answer for so long has failed."""

LARGEST_BODY: Final = 65_536
"""Bytes of a refusal that are read."""

FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)
"""What is raised when a request is not answered."""

_LARGEST_IGNORED: Final = 1_048_576
"""Bytes of an answer that are passed over for the sake of the connection."""

_LONGEST_BODY_S: Final = 1.0
"""How long the rest of an answer may take before nobody waits for it any longer."""

_IDLE_S: Final = 1.5
"""For how long a connection is kept that nobody uses; many servers close theirs after 2 or 5."""

_TOLD: Final = (
    (aiohttp.ServerDisconnectedError, "connection closed without an answer"),
    (aiohttp.ClientResponseError, "an answer that is not HTTP, or with too long a head"),
    (aiohttp.ClientConnectorCertificateError, "a certificate that is not trusted (--insecure)"),
    (aiohttp.ClientConnectorSSLError, "no TLS there"),
)
_JSON: Final = ("{", "[")


class Call:
    """Requests to *target*, put together once."""

    __slots__ = ("data", "headers", "method", "url")

    def __init__(self, target: Target) -> None:
        self.method = target.method
        self.url = URL(target.url)
        self.data = None if target.data is None else target.data.encode()
        self.headers = CIMultiDict(target.headers)
        self.headers.setdefault("User-Agent", "headgate-loadtest")
        self.headers.setdefault("Accept-Encoding", "identity")  # refusals have to be read
        if target.data is not None:
            is_json = target.data.lstrip().startswith(_JSON)
            kind = "application/json" if is_json else "application/octet-stream"
            self.headers.setdefault("Content-Type", kind)


def session_to(addresses: Sequence[str], *, is_verified: bool) -> aiohttp.ClientSession:
    """What keeps one connection, to one of *addresses*, whatever the name of the host.

    Redirects are not for it to follow; cookies are not kept, variables such as HTTP_PROXY not
    obeyed. *is_verified*: certificates have to be good.
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


async def body_of(response: aiohttp.ClientResponse, *, is_read: bool) -> bytes:
    """The body of *response*, or its beginning, if that is all that comes in time.

    If it is not to be read (*is_read*), it is passed over. Closes the connection if there is more.
    """
    content = response.content
    try:
        body = content.read_nowait()
        if content.at_eof():  # it came with the head, as nearly always
            return body
        async with asyncio.timeout(_LONGEST_BODY_S):
            return await _rest(response, body, is_read=is_read)
    except FAILURES:  # the head has said what matters
        response.close()
        return b""


async def _rest(response: aiohttp.ClientResponse, begin: bytes, *, is_read: bool) -> bytes:
    content, kept, size = response.content, [begin], len(begin)
    most = LARGEST_BODY if is_read else _LARGEST_IGNORED
    while size < most and not content.at_eof():
        chunk = await content.readany()
        size += len(chunk)
        if is_read:
            kept.append(chunk)
    if not content.at_eof():
        response.close()  # nobody reads on
    return b"".join(kept)[:LARGEST_BODY]


class _Known(AbstractResolver):
    """Knows the addresses of the one host that is asked: those that were looked at before."""

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
        """There is nothing to close."""


def failure_of(error: BaseException) -> str:
    """In a few words, why there was no answer."""
    if isinstance(error, TimeoutError):
        return f"no answer within {LONGEST_ANSWER_S:g} s"
    for kind, told in _TOLD:
        if isinstance(error, kind):
            return told
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return type(error).__name__


GRACE_NS: Final = 5 * SECOND
"""For how long requests that are late are sent when the time is over."""

_REFUSALS: Final = (429, 503)
"""Of these statuses the body says more."""


class Sender:
    """Sends *load* to *addresses*, which are those of *targets*, one for each caller.

    What is late is sent until *grace_ns* after the end. What comes of it is in `record` at any
    time, also if sending is cancelled.
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
        self._calls = [Call(target) for target in targets]
        self._next = 0
        self._started_by = [0] * len(targets)
        self._began_ns = 0

    def progress(self, what: str) -> str:
        """How far it is, in one line; *what* it is sending, if that is not the test itself."""
        record, load = self.record, self._load
        passed = (time.monotonic_ns() - self._began_ns) / SECOND if self._began_ns else 0.0
        told = f"{what}: " if what else ""
        return (
            f"{told}{min(passed, load.duration_ns / SECOND):.1f} of {load.duration_ns / SECOND:g} s"
            f", {len(record):,} of {load.requests:,} answered, "
            f"{record.count(Fate.ADMITTED):,} admitted"
        )

    async def run(self) -> None:
        """Send all that can be sent in time, and wait for the answers."""
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
        """One request after the other on one connection, each not before it is due.

        Lanes take turns, so that all connections are used alike.
        """
        load, calls, requests = self._load, self._calls, self._load.requests
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
                await self._one(session, caller, calls[caller], due_ns)

    async def _one(self, session: ClientSession, caller: int, call: Call, due_ns: int) -> None:
        record = self.record
        self._started_by[caller] += 1
        sent_ns = time.monotonic_ns()
        try:
            async with session.request(
                call.method,
                call.url,
                headers=call.headers,
                data=call.data,
                allow_redirects=False,
            ) as response:
                answered_ns = time.monotonic_ns()
                status = response.status
                body = await body_of(response, is_read=status in _REFUSALS)
                reply = Reply(status, response.headers, body)
        except FAILURES as error:
            record.add(caller, (due_ns, sent_ns, time.monotonic_ns()), Fate.FAILED)
            record.failures[failure_of(error)] += 1
            return
        read = self._reader.read(reply)
        record.add(caller, (due_ns, sent_ns, answered_ns), read.fate)
        record.statuses[status] += 1
        self._note(caller, reply, read.fate, read.by)

    def _note(self, caller: int, reply: Reply, fate: Fate, by: str) -> None:
        record, headers = self.record, reply.headers
        match fate:
            case Fate.REFUSED:
                fault = retry_after_fault(headers)
                record.without_retry_after += fault == "missing"
                record.with_bad_retry_after += fault == "bad"
            case Fate.ELSEWHERE:
                record.elsewhere[by] += 1
            case Fate.FAILED:
                record.failures[by] += 1
        if DECISION in headers:
            for one in self._reader.traced(headers):
                record.sources[one.source] += 1
                record.revisions.add(one.revision)
        if caller not in record.used_before:
            self._note_used(caller, headers, fate)

    def _note_used(self, caller: int, headers: Mapping[str, str], fate: Fate) -> None:
        """Note how much of the limit was in use before this caller's first request, by the answer
        to one of the first. A refused one takes nothing."""
        used, cost = self._reader.used(headers), self._reader.cost
        taken = cost if fate is Fate.ADMITTED else 0
        others = (self._started_by[caller] - 1) * cost
        self.record.used_at_most[caller] = max(0, used - taken)
        self.record.used_before[caller] = max(0, used - taken - others)


def _lanes(load: Load) -> int:
    """How many connections are used: so many that each caller comes by all of them in turn."""
    most = min(load.connections, load.requests)
    return next(count for count in range(most, 0, -1) if gcd(count, load.callers) == 1)
