"""What is ready to be sent, put together into as few requests as possible."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.stores.operations import GrantLease, MergeUsage, Operation, PublishValue, Reset, Take
from headgate.stores.redis.calls import (
    AbsorbRequest,
    LendRequest,
    OperationRequest,
    ResetRequest,
    ShareRequest,
    TakeBatch,
    Waiter,
)
from headgate.stores.redis.cluster_split import first_name
from headgate.stores.redis.fast_hits import MOST_HITS, HitBatch, LoneHit, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.operations import Outcomes
    from headgate.stores.redis.naming import Names
    from headgate.stores.redis.request import AsyncTransport, Request, Transport


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
            case GrantLease():
                return LendRequest(operation, names, now, waiter)
            case MergeUsage():
                return AbsorbRequest(operation, names, now, waiter)
            case PublishValue():
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


# Callers of one event loop that ask in the same tick, asked for together.
#
# Who asks when the server has nothing to do is sent at once. Otherwise the first one schedules the
# sending for the end of the tick; a full batch is sent right away, so that the server has something
# to do meanwhile.


class Collector:
    """What the callers of one event loop have pending."""

    __slots__ = ("_is_scheduled", "_last", "_may_be_alone", "_pending", "_transport", "loop")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: AsyncTransport,
        pending: Pending,
        *,
        has_server_clock: bool,
    ) -> None:
        self.loop = loop
        self._transport = transport
        self._pending = pending
        self._may_be_alone = has_server_clock
        self._is_scheduled = False
        self._last: asyncio.Future[Any] = loop.create_future()
        self._last.cancel()

    def hit(self, place: Place, name: bytes, key: str, cost: int) -> asyncio.Future[Outcomes]:
        waiter: asyncio.Future[Outcomes] = asyncio.Future(loop=self.loop)
        if self._last.done() and not self._is_scheduled and self._may_be_alone:
            self._transport.submit(LoneHit(place, name, key, cost, waiter))
            self._last = waiter
            return waiter
        is_full = self._pending.hit(place, name, key, cost, waiter)
        self._last = waiter
        if is_full or not self._is_scheduled:
            self._schedule(at_once=is_full)
        return waiter

    def operation(self, operation: Operation[Any]) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        is_full = self._pending.operation(operation, waiter)
        self._last = waiter
        if is_full or not self._is_scheduled:
            self._schedule(at_once=is_full)
        return waiter

    def _schedule(self, *, at_once: bool) -> None:
        if at_once:
            self._send()
        else:
            self._is_scheduled = True
            self.loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self._send()

    def _send(self) -> None:
        for request in self._pending.drain():
            try:
                self._transport.submit(request)
            except Exception as error:  # noqa: BLE001 (nobody may wait for ever, whatever it is)
                request.failed(StoreError(f"it could not be sent: {error!r}", is_undone=True))


# Threads that ask at the same time, asked for together.
#
# A thread that finds a free lane sends what it has at once and waits for nobody. While all lanes
# are under way, others queue up; the thread that comes back hands its lane, and all that have
# queued up, to the last of them, which has the most time left and sends everything in one go. Each
# has waited for as long as a call may take when its own time is up, whoever waits for its answer
# then.


class Answer:
    """What a thread waits for: the blocking half of a future."""

    __slots__ = ("_error", "_is_done", "_result")

    def __init__(self) -> None:
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._is_done = True

    def set_exception(self, error: BaseException, /) -> None:
        self._error = error
        self._is_done = True

    def outcome(self) -> Any:
        """The result, or the error."""
        return self._result if self._error is None else self._error

    def result(self) -> Any:
        """The result, or the error raised."""
        if self._error is not None:
            raise self._error
        return self._result


class Job:
    """What one thread wants to have sent: it adds itself to what is pending."""

    __slots__ = ("_turn", "add", "deadline", "error", "is_unsent", "led")

    def __init__(self, add: Callable[[Pending], object], deadline: float) -> None:
        self.add = add
        self.deadline = deadline
        self.led: list[Job] | None = None
        self.error: Exception | None = None
        self.is_unsent = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> bool:
        """Until it is done or has been made to lead; False if time is up before."""
        return self._turn.acquire(timeout=max(self.deadline - time.monotonic(), 0))

    def wake(self) -> None:
        self._turn.release()


class Combiner:
    """A few lanes to the server, and the threads that queue up for them."""

    def __init__(
        self, transport: Transport, pending: Callable[[], Pending], lanes: int, timeout: float
    ) -> None:
        self._transport = transport
        self._pending = pending
        self._timeout = timeout
        self._lock = threading.Lock()
        self._free = lanes
        self._queue: deque[Job] = deque()

    def take_lane(self) -> bool:
        """Take a free lane, if there is one; it has to be handed on afterwards."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
        return False

    def perform(self, add: Callable[[Pending], object]) -> bool:
        """Have what *add* adds sent and answered, or failed; or neither, if time was up before.

        False: nothing was sent.
        """
        with self._lock:
            is_free = self._free > 0
            if is_free:
                self._free -= 1
            else:
                job = Job(add, time.monotonic() + self._timeout)
                self._queue.append(job)
        if is_free:
            return self._lead([], add, time.monotonic() + self._timeout)
        return self._follow(job)

    def _follow(self, job: Job) -> bool:
        try:
            if not job.wait() and self._has_left(job):
                return False
            # If it has not left, it is under way, and ends by itself.
        except BaseException:
            self._resign(job)
            raise
        if job.led is not None:
            return self._lead(job.led[:-1], job.add, job.deadline)
        if job.error is not None:
            raise job.error
        return not job.is_unsent

    def _has_left(self, job: Job) -> bool:
        """Take *job* out of the queue, if it is still there."""
        with self._lock:
            if job in self._queue:
                self._queue.remove(job)
                return True
        return False

    def _resign(self, job: Job) -> None:
        """Leave, however far *job* has come; if it was to lead, the next one does."""
        if not self._has_left(job) and job.led is not None:
            with self._lock:
                self._queue.extendleft(reversed(job.led[:-1]))
            self.hand_on()

    def _lead(
        self, followers: list[Job], add: Callable[[Pending], object], deadline: float
    ) -> bool:
        """Send for all, until *deadline*; then hand the lane on, or put it back. False: it was too
        late, and nothing was sent.

        What cannot be asked is an error of who asked it, and of nobody else.
        """
        problem: Exception | None = None
        is_in_time = False
        try:
            pending = self._pending()
            for follower in followers:
                try:
                    follower.add(pending)
                except Exception as error:  # noqa: BLE001 (raised in the thread it concerns)
                    follower.error = error
            try:
                add(pending)
            except Exception as error:  # noqa: BLE001 (raised below, when the others are served)
                problem = error
            is_in_time = time.monotonic() < deadline
            if is_in_time:
                self._transport.perform(pending.drain(), deadline)
        finally:
            self.hand_on()
            for follower in followers:
                follower.is_unsent = not is_in_time
                follower.wake()
        if problem is not None:
            raise problem
        return is_in_time

    def hand_on(self) -> None:
        """Give a lane to those who have queued up, or put it back."""
        with self._lock:
            if not self._queue:
                self._free += 1
                return
            jobs = list(self._queue)
            self._queue.clear()
            jobs[-1].led = jobs
        jobs[-1].wake()
