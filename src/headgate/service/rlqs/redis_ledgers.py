"""Ledgers shared by the replicas of a service, in Redis or Valkey.

A ledger is one key. An allocation is computed here from the ledger as last seen and replaces it if
it is unchanged: one round trip. If another replica was faster, the reply contains its ledger, and
the allocation is computed again.

Time is the server's: every reply contains it, and between replies it is derived from this machine's
monotonic clock. The result is never ahead of the server, so assignments are never taken as ended
too early by more than a round trip, a small share of `RlqsOptions.delivery`. If the server's clock
steps back, ledgers do too (see `Ledger.set_back`).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b, sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headgate.chance import chance
from headgate.errors import StoreError
from headgate.runtime.heartbeat import new_name
from headgate.service.rlqs.ledger import NEVER, Ledger
from headgate.service.rlqs.shared import LedgerStore
from headgate.stores.redis.async_transport import AsyncTransport
from headgate.stores.redis.requests import Script, ScriptRequest
from headgate.stores.redis.url import parse_redis_url
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.service.rlqs.allocation import Allocation
    from headgate.service.rlqs.shared import Step
    from headgate.stores.redis.requests import Reply

_ATTEMPTS: Final = 16
_PAUSE: Final = 0.002
_SLACK_MS: Final = 60_000
_LONGEST_MS: Final = 10**15
_MOST_KNOWN: Final = 65_536
_SET_BACK_NS: Final = 2 * SECOND
"""Replicas disagree on the time by less. A ledger that is further ahead comes from before a step of
the clock, or from a server whose clock was ahead of its successor's."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A ledger as last seen; without a version it does not exist."""

    version: bytes = b""
    ledger: Ledger | None = None
    expires_ns: int = NEVER


class RedisLedgerStore(LedgerStore):
    """Ledgers of *namespace* on the servers of the store URL *url*."""

    def __init__(self, url: str, *, namespace: str = "headgate") -> None:
        self._transport = AsyncTransport(parse_redis_url(url))
        self._prefix = f"{quote(namespace, safe='')}&rlqs:".encode()
        self._seen: dict[str, _Seen] = {}
        self._offset_ns: int | None = None

    async def update(self, name: str, step: Step) -> Allocation:
        seen = self._seen.get(name, _Seen())
        for attempt in range(_ATTEMPTS):
            if self._offset_ns is None:
                seen = await self._look(name)
            if self._is_ahead(seen):  # our clock stood still, or the server's stepped back
                seen = await self._look(name)
            now_ns = self._now_ns()
            ledger = seen.ledger
            if ledger is not None and self._is_ahead(seen):
                ledger = ledger.set_back(now_ns)
            allocation = step(ledger, now_ns, NEVER)
            version = new_name().encode()
            reply = await self._put(name, seen.version, version, allocation)
            if reply[1] == 1:
                self._keep(name, _Seen(version, allocation.ledger, allocation.expires_ns))
                return allocation
            seen = self._found(name, reply, seen)
            if attempt:  # many replicas compete: spread the retries
                await asyncio.sleep(chance() * attempt * _PAUSE)
        raise StoreError(
            f"the ledger {name!r} changed during each of {_ATTEMPTS} attempts to update it"
        )

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _now_ns(self) -> int:
        return time.monotonic_ns() + (self._offset_ns or 0)

    def _is_ahead(self, seen: _Seen) -> bool:
        return seen.ledger is not None and seen.ledger.at_ns - self._now_ns() > _SET_BACK_NS

    async def _look(self, name: str) -> _Seen:
        """Read the ledger, by expecting a version that no ledger has."""
        reply = await self._call(name, [b"?", b"", b"", 0])
        return self._found(name, reply, self._seen.get(name, _Seen()))

    async def _put(
        self, name: str, expected: bytes, version: bytes, allocation: Allocation
    ) -> list[Reply]:
        left_ms = max(allocation.expires_ns - allocation.ledger.at_ns, 0) // MILLISECOND + _SLACK_MS
        text = allocation.ledger.packed().encode()
        return await self._call(name, [expected, version, text, min(left_ms, _LONGEST_MS)])

    async def _call(self, name: str, arguments: list[bytes | int]) -> list[Reply]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[Reply]] = loop.create_future()
        request = ScriptRequest(_script(), [self._prefix + _digest(name)], arguments, waiter)
        self._transport.submit(request)
        reply = await waiter
        self._set_clock(int(reply[0]) * MICROSECOND)
        return reply

    def _set_clock(self, assigned_ns: int) -> None:
        """Adjust our clock: the server's time was *assigned_ns* a moment ago, so it is not earlier
        now.

        The fastest reply is the most exact, but clocks drift, so the estimate ages a little each
        time.
        """
        offset = assigned_ns - time.monotonic_ns()
        if self._offset_ns is None or abs(offset - self._offset_ns) > SECOND:
            self._offset_ns = offset
        else:
            self._offset_ns = max(offset, self._offset_ns - 10 * MICROSECOND)

    def _found(self, name: str, reply: list[Reply], before: _Seen) -> _Seen:
        """The ledger in *reply*. A lost ledger is taken as it was last seen here."""
        version, text = bytes(reply[2]), bytes(reply[3])
        if not version:
            found = _Seen(b"", before.ledger, before.expires_ns)
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
    text = files("headgate.service.rlqs").joinpath("replace_ledger.lua").read_bytes()
    return Script("ledger", text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest().encode()
