"""Threads that ask at the same time, asked for together.

A thread that finds a free lane sends what it has at once and waits for nobody. While all lanes are
under way, others queue up; the thread that comes back hands its lane, and all that have queued up,
to the last of them, which has the most time left and sends everything in one go. Each has waited
for as long as a call may take when its own time is up, whoever waits for its answer then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.redis.calls.pending import Pending
    from headgate.stores.redis.request import Transport


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
