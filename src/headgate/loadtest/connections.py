"""Connections to the server under test, and to nothing else; and what is read from them.

Each lane of a load test has a connection of its own. One pool for all would use few of them, if
answers come fast, and all requests would reach the same worker of a server: workers that count
apart, the classical mistake, would go unnoticed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from headgate.errors import not_installed

try:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from multidict import CIMultiDict
    from yarl import URL
except ModuleNotFoundError as error:
    raise not_installed("loadtest", error) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.loadtest.targets import Target

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
