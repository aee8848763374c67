"""One server, or the primary that Sentinels name, for callers that may block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.stores.redis import errors
from headgate.stores.redis.request import Request, Transport
from headgate.stores.redis.transport.connection_pool import Lanes
from headgate.stores.redis.transport.reconnecting import Link
from headgate.stores.redis.transport.redirection import MOST_DETOURS, Refusal, judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.stores.redis.transport.async_connection import Owner, Pending, Wire
    from headgate.stores.redis.transport.blocking_connection import Lane


_ReplyError: Final = hiredis.ReplyError


class SoloTransport(Transport):
    """Blocking requests to the one server that *dial* connects to."""

    is_cluster = False

    def __init__(
        self, dial: Callable[[float], Lane], where: str, *, connections: int, timeout: float
    ) -> None:
        self._dial = dial
        self._where = where
        self._connections = connections
        self._timeout = timeout
        self._is_closed = False
        self._lanes = self._new_lanes()
        watch_forks(self)

    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        """Send all *requests* in one write and wait until each is answered or has failed."""
        if not requests:
            return
        if deadline is None:
            deadline = time.monotonic() + self._timeout
        try:
            lane = self._lanes.take(deadline)
        except StoreError as error:
            errors.fail_all(requests, errors.unsent(error))
            return
        try:
            is_stale = self._converse(lane, requests, deadline)
        except BaseException:
            self._lanes.drop(lane)
            raise
        if is_stale is None:
            self._lanes.drop(lane)
            self._lanes.renew()  # what befell one is likely to befall the others
        else:
            self._lanes.give(lane)
            if is_stale:
                self._lanes.renew()

    def close(self) -> None:
        """Drop all connections. Requests from now on fail."""
        self._is_closed = True
        self._lanes.close()

    def _new_lanes(self) -> Lanes:
        return Lanes(self._dial, self._where, most=self._connections, timeout=self._timeout)

    def after_fork(self) -> None:
        """After a fork: the connections, and the locks, are those of the parent's threads."""
        self._lanes = self._new_lanes()
        if self._is_closed:
            self._lanes.close()

    def _converse(self, lane: Lane, requests: Sequence[Request], deadline: float) -> bool | None:
        """Ask *requests* on *lane*, and once more with its text for those whose script is unknown.

        Every request has been answered or has failed. True if the server is a replica; None if the
        connection cannot be used any more.
        """
        packed = [request.packed() for request in requests]
        is_stale, detours = False, 0
        while True:
            try:
                lane.send(packed[0] if len(packed) == 1 else b"".join(packed), deadline)
                replies = lane.receive(len(packed), deadline)
            except errors.DRIVER_ERRORS as error:
                errors.fail_all(requests, self._loss(error, lane))
                return None
            unknown: list[Request] = []
            for request, reply in zip(requests, replies, strict=True):
                if reply.__class__ is not _ReplyError:
                    errors.deliver(request, reply, lane.where)
                    continue
                verdict = judge(str(reply), lane.where, detours)
                if isinstance(verdict, Refusal):
                    is_stale = is_stale or verdict.is_stale
                    request.failed(verdict.error)
                else:
                    unknown.append(request)
            if not unknown:
                return is_stale
            detours = MOST_DETOURS
            requests, packed = unknown, [request.packed_whole() for request in unknown]

    def _loss(self, error: BaseException, lane: Lane) -> StoreError:
        if self._is_closed:
            return errors.closed(self._where, is_undone=False)
        return errors.loss(error, lane.where, self._timeout)


# One server, or the primary that Sentinels name, in one event loop.


class SoloSite:
    """The one link to the server that *dial* connects to."""

    def __init__(
        self, dial: Callable[[Owner], Awaitable[Wire]], where: str, timeout: float
    ) -> None:
        self._link = Link(dial, self._judge, where, timeout)
        self.submit = self._link.submit
        self.aclose = self._link.aclose

    def owner_of(self, slot: int) -> str:
        """There are no slots."""
        return ""

    def _judge(self, link: Link, wire: Wire, pending: Pending, text: str) -> None:
        request, deadline, detours = pending
        verdict = judge(text, wire.where, detours)
        if not isinstance(verdict, Refusal):
            wire.forward((request, deadline, MOST_DETOURS), request.packed_whole())
            return
        request.failed(verdict.error)
        if verdict.is_stale:
            link.renew()
