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
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import not_installed
from headgate.loadtest.answers import LARGEST_BODY, Reply, decided_ns, retry_after_fault
from headgate.loadtest.record import Fate, Record
from headgate.units import SECOND

try:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
except ModuleNotFoundError as error:
    raise not_installed("loadtest", error) from error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.loadtest.answers import AnswerReader
    from headgate.loadtest.loads import Load
    from headgate.loadtest.targets import Target

LONGEST_ANSWER_S: Final = 10.0
"""A request without an answer for so long has failed."""

GRACE_NS: Final = 5 * SECOND
"""For how long requests that are late are sent when the time is over."""

_JSON: Final = ("{", "[")
_FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)


class Sender:
    """Sends *load* to *addresses*, which are those of *targets*, one for each caller.

    What is late is sent until *grace_ns* after the end. What comes of it is in `record` at any
    time, also if sending is cancelled. Redirects are not followed, cookies not kept, variables such
    as HTTP_PROXY not obeyed.
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
        self._started_by: Counter[int] = Counter()
        self._began_ns = 0

    def progress(self, what: str) -> str:
        """How far it is, in one line; *what* it is sending, if that is not the test itself."""
        fates, load = self.record.fates, self._load
        passed = (time.monotonic_ns() - self._began_ns) / SECOND if self._began_ns else 0.0
        told = f"{what}: " if what else ""
        return (
            f"{told}{min(passed, load.duration_ns / SECOND):.1f} of {load.duration_ns / SECOND:g} s"
            f", {len(fates):,} of {load.requests:,} answered, "
            f"{fates.count(Fate.ADMITTED):,} admitted"
        )

    async def run(self) -> None:
        """Send all that can be sent in time, and wait for the answers."""
        async with self._session() as session:
            self._began_ns, busy_ns = time.monotonic_ns(), time.process_time_ns()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._load.connections, self._load.requests)):
                        group.create_task(self._lane(session))
                self.record.unsent = self._load.requests - self._next
            finally:
                passed_ns = max(time.monotonic_ns() - self._began_ns, 1)
                self.record.busy = (time.process_time_ns() - busy_ns) / passed_ns

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            resolver=_Known(self._addresses),
            ssl=self._is_verified,
            keepalive_timeout=30.0,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=LONGEST_ANSWER_S),
            auto_decompress=False,
            headers={"User-Agent": "headgate-loadtest"},
        )

    async def _lane(self, session: aiohttp.ClientSession) -> None:
        """One request after the other, each not before it is due."""
        load, calls, requests = self._load, self._calls, self._load.requests
        ends_ns = self._began_ns + load.duration_ns + self._grace_ns
        while self._next < requests and time.monotonic_ns() <= ends_ns:
            place = self._next
            self._next += 1
            due_ns = self._began_ns + load.due_ns(place)
            early_ns = due_ns - time.monotonic_ns()
            if early_ns > 0:
                await asyncio.sleep(early_ns / SECOND)
            caller = place % load.callers
            await self._one(session, caller, calls[caller], due_ns)

    async def _one(
        self, session: aiohttp.ClientSession, caller: int, call: dict[str, Any], due_ns: int
    ) -> None:
        record = self.record
        self._started_by[caller] += 1
        sent_ns = time.monotonic_ns()
        try:
            async with session.request(**call) as response:
                answered_ns = time.monotonic_ns()
                body = await response.content.read(LARGEST_BODY)
                if not response.content.at_eof():
                    response.close()  # nobody reads on
                reply = Reply(response.status, response.headers, body)
        except _FAILURES as error:
            record.add(caller, (due_ns, sent_ns, time.monotonic_ns()), Fate.FAILED)
            record.failures[_named(error)] += 1
            return
        read = self._reader.read(reply)
        record.add(caller, (due_ns, sent_ns, answered_ns), read.fate)
        record.statuses[reply.status] += 1
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
        took_ns = decided_ns(headers)
        if took_ns is not None:
            record.decided_ns.append(took_ns)
        if caller not in record.used_before:
            record.used_before[caller] = self._used_before(caller, headers, fate)

    def _used_before(self, caller: int, headers: Mapping[str, str], fate: Fate) -> int:
        """How much of the limit was in use before this caller's first request, by the answer to
        one of the first. Others of its requests may have been counted before: they are not, and a
        refused one takes nothing."""
        own = self._started_by[caller] - (fate is not Fate.ADMITTED)
        return max(0, self._reader.used(headers) - own * self._reader.cost)


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


def _call(target: Target) -> dict[str, Any]:
    """What `session.request` is given for requests to *target*."""
    headers = list(target.headers)
    if target.data is not None and not any(name.lower() == "content-type" for name, _ in headers):
        is_json = target.data.lstrip().startswith(_JSON)
        kind = "application/json" if is_json else "application/octet-stream"
        headers.append(("Content-Type", kind))
    return {
        "method": target.method,
        "url": target.url,
        "headers": headers,
        "data": None if target.data is None else target.data.encode(),
        "allow_redirects": False,
    }


def _named(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {LONGEST_ANSWER_S:g} s"
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return type(error).__name__
