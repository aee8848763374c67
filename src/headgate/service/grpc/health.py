"""The health of the services of a server: `grpc.health.v1.Health`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.protobuf import decoder, message_class, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"

_decode: Final = decoder("grpc.health.v1.HealthCheckRequest")
_Response: Final[Any] = message_class("grpc.health.v1.HealthCheckResponse")
_EVERY_S: Final = 1.0
"""Time between two looks at the health, for watchers."""


class Health:
    """The health of the services with the methods *paths*, and of the server, which has no name."""

    def __init__(self, paths: Iterable[str], *, is_serving: Callable[[], bool]) -> None:
        self._services = {"", *(path.split("/")[1] for path in paths)}
        self._is_serving = is_serving
        self._closing = asyncio.Event()

    def check(self, request: bytes) -> bytes:
        """The health of a service, now. Raises `CallError` if it is unknown."""
        status = self._status(text_of(_decode(request).service))
        if status == _Response.SERVICE_UNKNOWN:
            raise CallError(Code.NOT_FOUND, "this server has no such service")
        return _reply(status)

    async def watch(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The health of a service, now and whenever it changes."""
        service = text_of(_decode(await anext(requests, b"")).service)
        last = None
        while True:
            if (status := self._status(service)) != last:
                last = status
                yield _reply(status)
            if self._closing.is_set():
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _EVERY_S)

    def close(self) -> None:
        """End all watches: the server stops."""
        self._closing.set()

    def _status(self, service: str) -> int:
        if service not in self._services:
            return int(_Response.SERVICE_UNKNOWN)
        return int(_Response.SERVING if self._is_serving() else _Response.NOT_SERVING)


def _reply(status: int) -> bytes:
    return bytes(_Response(status=status).SerializeToString())
