"""One way to drive every transport: blocking or in an event loop."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self

import hiredis

from headgate.errors import StoreError
from headgate.stores.redis.async_transport import AsyncTransport
from headgate.stores.redis.requests import Request
from headgate.stores.redis.transport import Transport
from headgate.stores.redis.url import parse_redis_url
from tests.support.servers import PATIENCE, with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

INCREMENT: Final = b"return redis.call('INCR', KEYS[1])"
KINDS: Final = ("sync", "async")


def pack(*words: bytes) -> bytes:
    """A command as it is written."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


class Script(Request):
    """EVALSHA of a small script; it remembers what became of it, and that it became so once."""

    __slots__ = ("_keys", "_reports", "_script", "done")

    def __init__(self, *keys: str, script: bytes = INCREMENT) -> None:
        self._keys = tuple(key.encode() for key in keys)
        self._script = script
        self._reports: list[Any] = []
        self.done: asyncio.Event | None = None

    @property
    def key(self) -> bytes:
        return self._keys[0]

    def packed(self) -> bytes:
        digest = hashlib.sha1(self._script, usedforsecurity=False).hexdigest().encode()
        return pack(b"EVALSHA", digest, b"%d" % len(self._keys), *self._keys)

    def packed_whole(self) -> bytes:
        return pack(b"EVAL", self._script, b"%d" % len(self._keys), *self._keys)

    def answered(self, reply: Any) -> None:
        self._report(reply)

    def failed(self, error: StoreError) -> None:
        self._report(error)

    def _report(self, outcome: Any) -> None:
        self._reports.append(outcome)
        if self.done is not None:
            self.done.set()

    async def wait(self) -> None:
        """Wait until it has reported."""
        assert self.done is not None
        await self.done.wait()

    @property
    def outcome(self) -> Any:
        """The reply, or the `StoreError`."""
        (outcome,) = self._reports
        return outcome


class Bundle(Script):
    """A script over several keys of one slot, that can be done key by key as well."""

    __slots__ = ("pieces",)

    def __init__(self, *keys: str) -> None:
        each = b"local r = {}; for i, k in ipairs(KEYS) do r[i] = redis.call('INCR', k) end;"
        super().__init__(*keys, script=each + b"return r")
        self.pieces: list[Script] = []

    def parts(self) -> Sequence[Request]:
        self.pieces = [Script(key.decode()) for key in self._keys]
        if self.done is not None:
            for piece in self.pieces:
                piece.done = asyncio.Event()
            self.done.set()  # they report for themselves
        return self.pieces

    async def wait(self) -> None:
        await super().wait()
        for piece in self.pieces:
            await piece.wait()


class Driver(ABC):
    """A transport, and what is asked of it by tests."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def perform(self, requests: Sequence[Script]) -> None:
        """Have *requests* carried out, all at once."""

    @abstractmethod
    @abstractmethod
    def close(self) -> None:
        """Close the transport."""

    def ask(self, *keys: str, script: bytes = INCREMENT) -> Any:
        """What became of one request."""
        request = Script(*keys, script=script)
        self.perform([request])
        return request.outcome

    def ask_all(self, *keys: str) -> list[Any]:
        """What became of a request for each key, all at once."""
        requests = [Script(key) for key in keys]
        self.perform(requests)
        return [request.outcome for request in requests]


class BlockingDriver(Driver):
    """The blocking one."""

    def __init__(self, url: str) -> None:
        self.transport: Any = Transport(parse_redis_url(url))

    def perform(self, requests: Sequence[Script]) -> None:
        self.transport.perform(requests)

    def close(self) -> None:
        self.transport.close()


class LoopDriver(Driver):
    """The one for event loops, in a loop that runs while something is asked."""

    def __init__(self, url: str) -> None:
        self.transport: Any = AsyncTransport(parse_redis_url(url))
        self.runner = asyncio.Runner()

    def perform(self, requests: Sequence[Script]) -> None:
        self.runner.run(self._perform(requests))

    async def _perform(self, requests: Sequence[Script]) -> None:
        for _ in range(3):
            await asyncio.sleep(0)  # what happened while the loop stood still comes first
        for request in requests:
            request.done = asyncio.Event()
            self.transport.submit(request)
        for request in requests:
            await request.wait()

    def close(self) -> None:
        self.runner.run(self.transport.aclose())
        self.runner.close()


def drive(kind: str, url: str, **options: object) -> Driver:
    """A driver of *kind*, one of `KINDS`, with more options in the URL."""
    if "timeout=" not in url:
        options.setdefault("timeout", PATIENCE)
    url = with_options(url, **options)
    return BlockingDriver(url) if kind == "sync" else LoopDriver(url)


def is_reply_error(value: object) -> bool:
    """Whether *value* is an error as it stands inside a reply."""
    return isinstance(value, hiredis.ReplyError)


def reason(outcome: Any) -> str:
    """Why a request has failed, which it must have."""
    assert isinstance(outcome, StoreError), outcome
    return outcome.reason
