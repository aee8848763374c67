"""The board that replicas of a service share, in Redis or Valkey.

A ledger is one key. A turn is computed here, from the ledger as it was seen last, and put in its
place if that is still the one that is there: one round trip. If another replica was faster the
reply brings its ledger, and the turn is taken again from that.

Time is the server's: every reply tells it, and between replies it is reckoned from this machine's
monotonic clock. It is never taken for later than it is, so grants are never thought over too soon
by more than the time that a round trip takes, which is a small part of `RlqsOptions.delivery`. If
the server's clock is set back, ledgers are too (see `Ledger.set_back`).
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b, sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headgate.errors import StoreError
from headgate.runtime.holds import new_name
from headgate.service.rlqs.ledger import NEVER, Ledger
from headgate.service.rlqs.shared import Board
from headgate.stores.redis.async_transport import AsyncTransport
from headgate.stores.redis.requests import Script, ScriptRequest
from headgate.stores.redis.url import parse_redis_url
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.service.rlqs.shared import Step
    from headgate.service.rlqs.turn import Turned
    from headgate.stores.redis.requests import Reply

_ATTEMPTS: Final = 16
_PAUSE: Final = 0.002
_SLACK_MS: Final = 60_000
_LONGEST_MS: Final = 10**15
_MOST_KNOWN: Final = 65_536
_SET_BACK_NS: Final = 2 * SECOND
"""Replicas differ by less on what time it is; a ledger that is further ahead is of a clock that has
been set back since, or of a server that was ahead of the one that has taken its place."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A ledger as it was last seen; without a version it is not there."""

    version: bytes = b""
    ledger: Ledger | None = None
    as_new_ns: int = NEVER


class RedisBoard(Board):
    """Ledgers in the servers that *url* names, a store URL; those of *namespace*."""

    def __init__(self, url: str, *, namespace: str = "headgate") -> None:
        self._transport = AsyncTransport(parse_redis_url(url))
        self._prefix = f"{quote(namespace, safe='')}&rlqs:".encode()
        self._seen: dict[str, _Seen] = {}
        self._offset_ns: int | None = None

    async def take(self, name: str, step: Step) -> Turned:
        seen = self._seen.get(name, _Seen())
        for attempt in range(_ATTEMPTS):
            if self._offset_ns is None:
                seen = await self._look(name)
            if self._is_ahead(seen):  # of a clock of ours that stood still, or the server's
                seen = await self._look(name)
            now_ns = self._now_ns()
            ledger = seen.ledger
            if ledger is not None and self._is_ahead(seen):
                ledger = ledger.set_back(now_ns)
            turned = step(ledger, now_ns, NEVER)
            version = new_name().encode()
            reply = await self._put(name, seen.version, version, turned)
            if reply[1] == 1:
                self._keep(name, _Seen(version, turned.ledger, turned.as_new_ns))
                return turned
            seen = self._found(name, reply, seen)
            if attempt:  # there are many at it: not all again at the same time
                await asyncio.sleep(random.random() * attempt * _PAUSE)  # noqa: S311 (no secret)
        raise StoreError(f"the ledger {name!r} changed {_ATTEMPTS} times while it was looked at")

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _now_ns(self) -> int:
        return time.monotonic_ns() + (self._offset_ns or 0)

    def _is_ahead(self, seen: _Seen) -> bool:
        return seen.ledger is not None and seen.ledger.at_ns - self._now_ns() > _SET_BACK_NS

    async def _look(self, name: str) -> _Seen:
        """The ledger as it is; the version asked for is one that none has."""
        reply = await self._call(name, [b"?", b"", b"", 0])
        return self._found(name, reply, self._seen.get(name, _Seen()))

    async def _put(self, name: str, expected: bytes, version: bytes, turned: Turned) -> list[Reply]:
        left_ms = max(turned.as_new_ns - turned.ledger.at_ns, 0) // MILLISECOND + _SLACK_MS
        text = turned.ledger.packed().encode()
        return await self._call(name, [expected, version, text, min(left_ms, _LONGEST_MS)])

    async def _call(self, name: str, arguments: list[bytes | int]) -> list[Reply]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[Reply]] = loop.create_future()
        request = ScriptRequest(_script(), [self._prefix + _digest(name)], arguments, waiter)
        self._transport.submit(request)
        reply = await waiter
        self._set_clock(int(reply[0]) * MICROSECOND)
        return reply

    def _set_clock(self, told_ns: int) -> None:
        """The server said *told_ns* some time ago: it is not earlier than that now.

        The quickest reply tells best, but clocks drift: so what is known ages a little each time.
        """
        offset = told_ns - time.monotonic_ns()
        if self._offset_ns is None or abs(offset - self._offset_ns) > SECOND:
            self._offset_ns = offset
        else:
            self._offset_ns = max(offset, self._offset_ns - 10 * MICROSECOND)

    def _found(self, name: str, reply: list[Reply], before: _Seen) -> _Seen:
        """The ledger that *reply* brings. One that was lost is what it was when it was last
        seen here."""
        version, text = bytes(reply[2]), bytes(reply[3])
        if not version:
            found = _Seen(b"", before.ledger, before.as_new_ns)
        else:
            found = _Seen(version, Ledger.unpacked(text))
        self._keep(name, found)
        return found

    def _keep(self, name: str, seen: _Seen) -> None:
        if len(self._seen) >= _MOST_KNOWN and name not in self._seen:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = seen


@cache
def _script() -> Script:
    text = files("headgate.service.rlqs").joinpath("board.lua").read_bytes()
    return Script("board", text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest().encode()
