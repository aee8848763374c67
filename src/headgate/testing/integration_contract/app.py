"""The app of a test, for any framework: its routes, their behaviour, and what a test observes.

A framework adapter builds an app from an `AppSpec`. Each endpoint calls `Script.play` (or `aplay`)
with a `Call`, and sends the `Answer`.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from headgate.errors import StoreError
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import RenewSlot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from headgate.stores.operations import Operation
    from headgate.testing.clock import ManualClock

Behaviour = Literal[
    "ok",
    "echo",
    "reads",
    "stream",
    "breaks",
    "fails",
    "raises",
    "waits",
    "status",
    "reports",
    "exposes",
]
"""The behaviour of an endpoint:

- `ok`: 200 with the body `ok`, and the header `X-Tokens` of the request, if it has one;
- `echo`: 200, and each part of the body of the request as soon as it is read;
- `reads`: 200 with the body of the request, after all of it was read;
- `stream`: reports `X-Used` as in `reports`, sends `one,`, waits for the gate, sends `two`;
- `breaks`: sends `one,`, waits for the gate, and fails with `AppError`;
- `fails`: raises `AppError`;
- `raises`: raises the error of the framework for a response with status 403;
- `waits`: waits for the gate, then as `ok`;
- `status`: the status that the header `X-Status` of the request names;
- `reports`: reports the number in `X-Used` as the real cost of the limit `tokens`;
- `exposes`: as `ok`, with `Access-Control-Expose-Headers: X-Own`.
"""

PATIENCE: Final = 30.0
"""Seconds after which a test that waits for something fails."""

FORBIDDEN: Final = 403
"""The status of the behaviour `raises`."""


class AppError(Exception):
    """An error of the app that nothing in it handles."""


class HasHeaders(Protocol):
    """The request that functions of a test read."""

    def header(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class HeadersOf:
    """The headers of a request of a framework. *headers* finds names in any case."""

    headers: Mapping[str, str]

    def header(self, name: str) -> str | None:
        return self.headers.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route: the endpoint *behaviour* at *path*, a template such as `/items/{item}`.

    *limit*: the options of its limit, as of `RouteLimit`; functions among them take an object
    `HasHeaders`. *mount*: the prefix of a mounted app that it is in. *is_exempt*: the endpoint is
    marked as exempt from the limits of the app.
    """

    path: str = "/"
    behaviour: Behaviour = "ok"
    limit: Mapping[str, Any] | None = None
    mount: str = ""
    is_exempt: bool = False


@dataclass(frozen=True, slots=True)
class AppSpec:
    """An app: its routes, the options of its `RequestLimiter`, and the script of its endpoints."""

    routes: tuple[Route, ...]
    options: Mapping[str, Any]
    script: Script


class Gate:
    """A gate at which endpoints wait, in threads and in event loops, until a test opens it."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        """Open the gate for good."""
        self._opened.set()

    def wait(self) -> None:
        """Wait in a thread."""
        if not self._opened.wait(PATIENCE):
            raise TimeoutError("the gate was not opened")

    async def await_(self) -> None:
        """Wait in an event loop."""
        await asyncio.to_thread(self.wait)


class Tally:
    """A count that a test can wait for."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """Count one more."""
        self.reach(self.count + 1)

    def reach(self, count: int) -> None:
        """Set the count."""
        with self._changed:
            self.count = count
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until the count is at least *count*."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.count >= count, PATIENCE):
                raise TimeoutError(f"{self.count} of {count} after {PATIENCE} s")


class Call(Protocol):
    """A request at an endpoint, in an app that blocks."""

    def header(self, name: str) -> str | None: ...
    def read(self, size: int) -> bytes: ...
    def report(self, amounts: Mapping[str, int]) -> None: ...
    def forbid(self) -> Answer: ...


class AsyncCall(Protocol):
    """A request at an endpoint, in an async app. `forbid` raises, or returns the response."""

    def header(self, name: str) -> str | None: ...
    def parts(self) -> AsyncIterator[bytes]: ...
    def report(self, amounts: Mapping[str, int]) -> None: ...
    def forbid(self) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of an endpoint: with a whole body, or with one that is sent in parts."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Iterator[bytes] | AsyncIterator[bytes] = b"ok"


@dataclass(slots=True)
class Script:
    """Endpoints that follow their behaviour and record their calls."""

    gate: Gate = field(default_factory=Gate)
    entered: Tally = field(default_factory=Tally)

    def play(self, behaviour: Behaviour, call: Call) -> Answer:
        """Return the answer of an endpoint that blocks."""
        self.entered.add()
        if behaviour == "waits":
            self.gate.wait()
        if behaviour in ("stream", "breaks"):
            _report(call)
            return Answer(body=self._parts(behaviour))
        if behaviour == "echo":
            return Answer(body=iter(lambda: call.read(4), b""))
        if behaviour == "reads":
            return Answer(body=b"".join(iter(lambda: call.read(4), b"")))
        return _at_once(behaviour, call)

    async def aplay(self, behaviour: Behaviour, call: AsyncCall) -> Answer:
        """Return the answer of an async endpoint."""
        self.entered.add()
        if behaviour == "waits":
            await self.gate.await_()
        if behaviour in ("stream", "breaks"):
            _report(call)
            return Answer(body=self._aparts(behaviour))
        if behaviour == "echo":
            return Answer(body=call.parts())
        if behaviour == "reads":
            return Answer(body=b"".join([part async for part in call.parts()]))
        return _at_once(behaviour, call)

    def _parts(self, behaviour: Behaviour) -> Iterator[bytes]:
        yield b"one,"
        self.gate.wait()
        if behaviour == "breaks":
            raise AppError("the app fails halfway")
        yield b"two"

    async def _aparts(self, behaviour: Behaviour) -> AsyncIterator[bytes]:
        yield b"one,"
        await self.gate.await_()
        if behaviour == "breaks":
            raise AppError("the app fails halfway")
        yield b"two"


def _at_once(behaviour: Behaviour, call: Call | AsyncCall) -> Answer:
    if behaviour == "fails":
        raise AppError("the app fails")
    if behaviour == "raises":
        return call.forbid()
    if behaviour == "status":
        return Answer(int(call.header("x-status") or 200))
    if behaviour == "reports":
        _report(call)
    if behaviour == "exposes":
        return Answer(headers={"Access-Control-Expose-Headers": "X-Own"})
    tokens = call.header("x-tokens")
    return Answer(headers={} if tokens is None else {"X-Tokens": tokens})


def _report(call: Call | AsyncCall) -> None:
    used = call.header("x-used")
    if used is not None:
        call.report({"tokens": int(used)})


class ContractStore(Store):
    """Counters in memory behind a wire. It can be unavailable, and records renewals and its end.

    A reply does not come at once, so integrations take their slow path.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.inner = MemoryStore(clock=clock)
        self.is_gone = False
        self.renewed = Tally()
        """The time of the latest renewal of slots, in nanoseconds."""
        self.closings = Tally()

    def run(self, operation: Operation[Any]) -> Any:
        """Carry *operation* out, unless the store is unavailable."""
        if self.is_gone:
            raise StoreError("the store is gone")
        now_ns = self._clock()
        reply = self.inner.run(operation)
        if isinstance(operation, RenewSlot):
            self.renewed.reach(now_ns)
        return reply

    async def arun(self, operation: Operation[Any]) -> Any:
        """Carry *operation* out in an event loop, after others had several chances to run."""
        for _ in range(10):
            await asyncio.sleep(0)
        return self.run(operation)

    def close(self) -> None:
        """Record that it was closed."""
        self.closings.add()

    async def aclose(self) -> None:
        """Record that it was closed."""
        self.closings.add()
