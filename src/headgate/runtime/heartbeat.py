"""Heartbeats: leases are renewed in the background for as long as they are held.

A lease is renewed every third of its time. A renewal that fails is tried again soon, until the
lease has expired; a lease that is denied or has expired is lost, and its heartbeat ends. So does
that of a lease whose owner was collected: it expires, as after a crash. `Pulse` and `Schedule` are
pure. `Heart` is a few threads for all leases of a process, with a heap of due times; in an event
loop each lease has a timer, and a task while it is being renewed (`AsyncBeat`). `StartHeartbeat` is
the effect that begins either.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Final
from weakref import ref

from headgate.errors import HeadgateError, OptionError
from headgate.fork import watch_forks
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Effect
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects

BEATS: Final = 3
"""Renewals of a lease in its time."""
RETRIES: Final = 4
"""Attempts of a failed renewal until the next one would be due."""
LINGER_S: Final = 5.0
"""Seconds that a thread waits for another lease when there is none."""
THREADS: Final = 4
"""Renewals at the same time, at most: one that hangs does not delay others."""
_MANY: Final = 64

LOG: Final = logging.getLogger("headgate.runtime.heartbeat")


class Pulse:
    """The due time of one lease, and if it is lost. Pure: time comes in.

    It is renewed every *every_ns*, and lasts for `BEATS` times as long.
    """

    __slots__ = ("_every_ns", "_lapses_ns", "due_ns", "is_lost")

    def __init__(self, every_ns: int, now: int) -> None:
        if type(every_ns) is not int or every_ns < 1:
            raise OptionError(f"every_ns is {every_ns!r}; expected nanoseconds of at least 1")
        self._every_ns = every_ns
        self.is_lost = False
        self.renewed(now)

    def has_lapsed(self, now: int) -> bool:
        """True if the lease was not renewed in its time, for whatever reason."""
        return now >= self._lapses_ns

    def renewed(self, asked_ns: int) -> None:
        """Record a renewal, by a call that began at *asked_ns*."""
        self.due_ns = asked_ns + self._every_ns
        self._lapses_ns = asked_ns + BEATS * self._every_ns

    def failed(self, now: int) -> None:
        """Record a renewal with an unknown result: it is tried again while the lease may last."""
        if now >= self._lapses_ns:
            self.is_lost = True
        self.due_ns = min(now + max(1, self._every_ns // RETRIES), max(now, self._lapses_ns))

    def denied(self) -> None:
        """Record that the store does not know the lease any more."""
        self.is_lost = True


class Beat:
    """A lease that is renewed, until `stop` or until it is lost."""

    __slots__ = ("_heart", "_owner", "is_over", "pulse", "renew")

    def __init__(
        self,
        heart: Heart,
        renew: Callable[[], bool],
        every_ns: int,
        now: int,
        owner: object | None = None,
    ) -> None:
        self._heart = heart
        self._owner = None if owner is None else ref(owner)
        self.renew: Callable[[], bool] | None = renew
        self.pulse = Pulse(every_ns, now)
        self.is_over = False

    @property
    def is_lost(self) -> bool:
        """True if the lease has expired, or another caller has it."""
        return self.pulse.is_lost or self.pulse.has_lapsed(self._heart.now())

    @property
    def has_owner(self) -> bool:
        """True if the owner, who could release the lease, still exists."""
        return self._owner is None or self._owner() is not None

    def stop(self) -> None:
        """Renew it no more. A renewal in progress is not waited for."""
        self._heart.forget(self)


class Schedule:
    """A heap of heartbeats by due time; those that have ended are removed now and then. Pure."""

    __slots__ = ("_heap", "_over", "_ties")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Beat]] = []
        self._ties = count()
        self._over = 0

    def __len__(self) -> int:
        """The number of entries, including some that have ended."""
        return len(self._heap)

    def add(self, beat: Beat) -> bool:
        """Add *beat*; True if it is due before all others."""
        heappush(self._heap, (beat.pulse.due_ns, next(self._ties), beat))
        return self._heap[0][2] is beat

    def wait_ns(self, now: int) -> int | None:
        """The nanoseconds until the first is due; None if there is none."""
        self._drop_first()
        return max(0, self._heap[0][0] - now) if self._heap else None

    def pop(self, now: int) -> Beat | None:
        """Remove and return the first that is due, if one is."""
        self._drop_first()
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def end(self, beat: Beat) -> None:
        """End *beat*, if it is in here or not."""
        if not beat.is_over:
            beat.is_over, beat.renew = True, None
            self._over += 1
        if self._over > max(_MANY, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapify(self._heap)
            self._over = 0

    def _drop_first(self) -> None:
        while self._heap and self._heap[0][2].is_over:
            heappop(self._heap)
            self._over = max(0, self._over - 1)


class Heart:
    """Renews leases from daemon threads, which run only while there are any.

    While one thread renews a lease, another waits for the next due time, so that a slow store does
    not delay the leases of others. Safe to share among threads. A forked process begins with none:
    the leases are its parent's.
    """

    def __init__(self, *, clock: Clock = time.monotonic_ns) -> None:
        self._clock = clock
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin as a new process, without threads."""
        self._changed = threading.Condition()
        self._schedule = Schedule()
        self._threads: set[threading.Thread] = set()
        self._waiting = 0

    @property
    def is_running(self) -> bool:
        """True if there is a thread."""
        return bool(self._threads)

    def now(self) -> int:
        """The time in nanoseconds."""
        return self._clock()

    def beat(self, renew: Callable[[], bool], every_ns: int, owner: object | None = None) -> Beat:
        """Call *renew* every *every_ns* until the returned beat is stopped or lost; or until
        *owner*, if there is one, is collected: so *renew* must not refer to it.

        *renew* returns True if the lease is still held. If it raises, it is called again soon, and
        the lease is lost when it has expired: after three times *every_ns*. It is called in one of
        a few threads, so it must not wait for anything but the store.
        """
        beat = Beat(self, renew, every_ns, self._clock(), owner)
        with self._changed:
            is_first = self._schedule.add(beat)
            if not self.is_running:
                self._start()
            elif is_first:
                self._changed.notify()
        return beat

    def forget(self, beat: Beat) -> None:
        """Renew *beat* no more."""
        with self._changed:
            self._schedule.end(beat)

    def renew_due(self, now: int) -> bool:
        """Renew the first lease that is due at *now*; True if there was one."""
        with self._changed:
            beat = self._schedule.pop(now)
            renew = None if beat is None else beat.renew
        if beat is None or renew is None:
            return False
        if not beat.has_owner:
            self.forget(beat)
            return True
        pulse = beat.pulse
        try:
            is_held = renew()
        except Exception as error:  # noqa: BLE001 (one lease must not end the beats of all others)
            _log(error)
            pulse.failed(self._clock())
        else:
            pulse.renewed(now) if is_held else pulse.denied()
        with self._changed:
            if beat.is_lost:
                self._schedule.end(beat)
            elif not beat.is_over:
                self._schedule.add(beat)
        return True

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="headgate-heartbeat", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # no more threads can be had: the others have to do
            self._threads.discard(thread)
            if not self._threads:
                raise

    def _run(self) -> None:
        try:
            while self._is_due():
                self.renew_due(self._clock())
        finally:
            self._threads.discard(threading.current_thread())

    def _is_due(self) -> bool:
        """Wait until a lease is due, with another thread waiting; False if there was none for a
        while, or enough threads wait."""
        with self._changed:
            if self._waiting < 2 and self._waits():
                if not self._waiting and len(self._threads) < THREADS:
                    self._start()
                return True
            self._threads.discard(threading.current_thread())  # in time for a beat that begins now
            return False

    def _waits(self) -> bool:
        self._waiting += 1
        try:
            while True:
                wait_ns = self._schedule.wait_ns(self._clock())
                if wait_ns == 0:
                    return True
                was_notified = self._changed.wait(LINGER_S if wait_ns is None else wait_ns / SECOND)
                if wait_ns is None and not was_notified and not len(self._schedule):
                    return False
        finally:
            self._waiting -= 1


class AsyncBeat:
    """A `Beat` in the running event loop: a timer, and a task while the lease is being renewed.

    See `Heart.beat`; *renew* is awaited.
    """

    __slots__ = ("_loop", "_owner", "_pulse", "_renew", "_task", "_timer")

    def __init__(
        self, renew: Callable[[], Awaitable[bool]], every_ns: int, owner: object | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = None if owner is None else ref(owner)
        self._renew: Callable[[], Awaitable[bool]] | None = renew
        self._pulse = Pulse(every_ns, self._now())
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    @property
    def is_lost(self) -> bool:
        """True if the lease has expired, or another caller has it."""
        return self._pulse.is_lost or self._pulse.has_lapsed(self._now())

    def stop(self) -> None:
        """Renew it no more; a renewal in progress is cancelled. From any thread."""
        self._renew = None
        with suppress(RuntimeError):  # there is no loop here
            if asyncio.get_running_loop() is self._loop:
                self._cancel()
                return
        with suppress(RuntimeError):  # that loop is closed: nothing is renewed in it any more
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _now(self) -> int:
        return round(self._loop.time() * SECOND)

    def _wait(self) -> None:
        self._timer = self._loop.call_at(self._pulse.due_ns / SECOND, self._start)

    def _start(self) -> None:
        has_owner = self._owner is None or self._owner() is not None
        if self._renew is not None and has_owner:
            self._task = self._loop.create_task(self._renewal(self._renew))

    async def _renewal(self, renew: Callable[[], Awaitable[bool]]) -> None:
        asked_ns = self._now()
        try:
            is_held = await renew()
        except Exception as error:  # noqa: BLE001 (whatever it is, the lease may still be saved)
            _log(error)
            self._pulse.failed(self._now())
        else:
            self._pulse.renewed(asked_ns) if is_held else self._pulse.denied()
        self._task = None
        if self._renew is not None and not self.is_lost:
            self._wait()


def _log(error: Exception) -> None:
    """Log *error*, unless it is that of a store, which is reported elsewhere."""
    if not isinstance(error, HeadgateError):
        LOG.error("a lease could not be renewed, and will be tried again", exc_info=error)


HEART: Final = Heart()
"""The heart of this process."""


class StartHeartbeat(Effect):
    """Renew a lease of *lease_ns* by *renew* until its beat is stopped, or until *owner*, if there
    is one, is collected: some servers drop a response without closing it. The result is the beat.

    *renew* must not refer to the owner.
    """

    __slots__ = ("every_ns", "owner", "renew")

    def __init__(
        self, renew: Callable[[], Effects[bool]], lease_ns: int, owner: object | None = None
    ) -> None:
        self.renew = renew
        self.every_ns = max(1, lease_ns // BEATS)
        self.owner = owner

    def perform(self) -> Beat:
        renew = self.renew
        return HEART.beat(lambda: drive(renew()), self.every_ns, self.owner)

    async def aperform(self) -> AsyncBeat:
        renew = self.renew
        return AsyncBeat(lambda: adrive(renew()), self.every_ns, self.owner)


def new_name() -> str:
    """A name for a lease or a reservation that no other process chooses."""
    return token_hex(12)
