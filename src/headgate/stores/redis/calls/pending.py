"""What is ready to be sent, put together into as few requests as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.stores.operations import Absorb, Draw, Lend, Operation, Pour, Reset, Share, Take
from headgate.stores.redis.calls.hitting import MOST_HITS, HitBatch, Place
from headgate.stores.redis.calls.lending import AbsorbRequest, LendRequest, PotRequest
from headgate.stores.redis.calls.requests import OperationRequest, ResetRequest, TakeBatch, Waiter
from headgate.stores.redis.calls.sharing import ShareRequest
from headgate.stores.redis.calls.spreading import first_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.redis.counters.naming import Names
    from headgate.stores.redis.request import Request

MOST_TAKES: Final = 16
"""Takes in one call; each may have several checks, and takes the server a few times as long."""


class Pending:
    """Requests in the making. Not safe to share among threads: its owner sees to that.

    Everything that concerns one key is asked in the order in which it was added.
    """

    __slots__ = ("_hits", "_names", "_now", "_requests", "_takes")

    def __init__(self, names: Names, now: Callable[[], bytes]) -> None:
        self._names = names
        self._now = now
        self._requests: list[Request] = []
        self._hits: dict[Place | tuple[Place, bytes], HitBatch] = {}
        self._takes: dict[bytes, TakeBatch] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    def hit(self, place: Place, name: bytes, key: str, cost: int, waiter: Waiter) -> bool:
        """Add a hit of *key*, whose counter is *name*; whether it is time to send."""
        bucket = (place, self._names.tag(name)) if self._names.has_tags else place
        batch = self._hits.get(bucket)
        if batch is None:
            batch = HitBatch(place, self._now())
            self._takes.clear()
            self._hits[bucket] = batch
            self._requests.append(batch)
        if batch.add(name, key, cost, waiter) < MOST_HITS:
            return False
        del self._hits[bucket]
        return True

    def operation(self, operation: Operation[Any], waiter: Waiter) -> bool:
        """Add an operation, all of whose keys are in one slot; whether it is time to send."""
        if isinstance(operation, Take):
            return self._take(operation, waiter)
        request = self._request(operation, waiter)
        self._hits.clear()
        self._takes.clear()
        self._requests.append(request)
        return False

    def drain(self) -> list[Request]:
        """All requests, which are not pending any more."""
        requests, self._requests = self._requests, []
        self._hits.clear()
        self._takes.clear()
        return requests

    def _request(self, operation: Operation[Any], waiter: Waiter) -> Request:
        names, now = self._names, self._now()
        match operation:
            case Reset():
                return ResetRequest(operation, names, waiter)
            case Lend():
                return LendRequest(operation, names, now, waiter)
            case Pour() | Draw():
                return PotRequest(operation, names, now, waiter)
            case Absorb():
                return AbsorbRequest(operation, names, now, waiter)
            case Share():
                return ShareRequest(operation, names, now, waiter)
            case _:
                return OperationRequest(operation, names, now, waiter)

    def _take(self, take: Take, waiter: Waiter) -> bool:
        tag = self._names.tag(first_name(take, self._names)) if self._names.has_tags else b""
        batch = self._takes.get(tag)
        if batch is not None:
            batch.add(take, waiter)
        else:
            batch = TakeBatch(self._names, self._now())
            batch.add(take, waiter)  # it may raise: then there is no batch
            self._hits.clear()
            self._takes[tag] = batch
            self._requests.append(batch)
        if len(batch) < MOST_TAKES:
            return False
        del self._takes[tag]
        return True
