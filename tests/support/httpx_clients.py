"""A server that is a function, and httpx clients of both kinds that call it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.clients.httpx import AsyncPacedTransport, PacedTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.testing import ManualClock

URL = "https://api.example.com/things"


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that knows whether it was read and closed."""

    def __init__(self, size: int = 2) -> None:
        self.left = size
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        while self.left:
            self.left -= 1
            yield b"x" * 1_000

    async def __aiter__(self) -> Any:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Service:
    """Sends the given responses one after the other, then 200; records the times of calls."""

    def __init__(self, clock: ManualClock, *answers: tuple[int, dict[str, str]]) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.times: list[float] = []
        self.bodies: list[Body] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.times.append(self.clock.now)
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        self.bodies.append(Body())
        return httpx.Response(status, headers=headers, stream=self.bodies[-1])


class Blocking:
    """A client of either kind, as one that blocks."""

    def __init__(self, kind: str, service: Service, **options: Any) -> None:
        options = {"clock": service.clock, "random": lambda: 0.0, **options}
        inner = httpx.MockTransport(service)
        self.request: Callable[..., httpx.Response]
        if kind == "sync":
            client = httpx.Client(transport=PacedTransport(inner, **options))
            self.request = client.request
            self.close = client.close
        else:
            runner = asyncio.Runner()
            aclient = httpx.AsyncClient(transport=AsyncPacedTransport(inner, **options))
            self.request = lambda *args, **kw: runner.run(aclient.request(*args, **kw))

            def close() -> None:
                runner.run(aclient.aclose())
                runner.close()

            self.close = close

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


kinds = pytest.mark.parametrize("kind", ["sync", "async"])


def since(service: Service) -> list[float]:
    return [time - 1_000_000_000 for time in service.times]
