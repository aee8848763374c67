"""Heartbeats: leases are renewed in the background for as long as they are held.

A lease is renewed every third of its time. A renewal that fails is tried again soon, until the
lease has expired; a lease that is denied or has expired is lost, and its heartbeat ends. So does
that of a lease whose owner was collected: it expires, as after a crash.

A `Heart` renews leases in rounds of work in the background: one heart in a thread for all callers
that block, one in each event loop. `StartHeartbeat` is the effect that begins a heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, ref

from headgate.errors import HeadgateError
from headgate.fork import watch_forks
from headgate.runtime.background import BackgroundWork
from headgate.runtime.drivers import Background
from headgate.runtime.effects import Effect
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects

BEATS: Final = 3
"""Renewals of a lease in its time."""
RETRIES: Final = 4
"""Attempts of a failed renewal until the next one would be due."""
EARLY: Final = 8
"""A round renews leases that are due within one of so many parts of the time to the next beat."""
THREADS: Final = 4
"""Threads for renewals at the same time: one that hangs does not delay others."""

LOG: Final = logging.getLogger("headgate.runtime.heartbeat")
_NAME: Final = "headgate-heartbeat"


class Beat:
    """A lease that *heart* renews by *renew*, until `stop` or until it is lost.

    It is renewed every *every_ns*, and lasts for `BEATS` times as long.
    """

    __slots__ = ("_every_ns", "_heart", "_is_denied", "_lapses_ns", "_owner", "due_ns", "renew")

    def __init__(
        self,
        heart: Heart,
        renew: Callable[[], Effects[bool]],
        every_ns: int,
        owner: object | None = None,
    ) -> None:
        self.renew = renew
        self._heart = heart
        self._every_ns = every_ns
        self._owner = None if owner is None else ref(owner)
        self._is_denied = False
        self._lapses_ns = self.due_ns = 0
        self.renewed(heart.now())

    @property
    def is_lost(self) -> bool:
        """True if the lease has expired, or another caller has it."""
        return self._is_denied or self._heart.now() >= self._lapses_ns

    @property
    def is_over(self) -> bool:
        """True if it is renewed no more."""
        return self not in self._heart.beats

    @property
    def has_owner(self) -> bool:
        """True if the owner, who could release the lease, still exists."""
        return self._owner is None or self._owner() is not None

    def stop(self) -> None:
        """Renew it no more. A renewal in progress is not waited for."""
        self._heart.beats.pop(self, None)

    def is_due(self, now: int) -> bool:
        """True if it is to be renewed in a round at *now*."""
        return now >= self.due_ns - self._every_ns // EARLY

    def begin(self) -> None:
        """Record that a renewal begins: the next one is due only when its result is known."""
        self.due_ns = self._lapses_ns

    def renewed(self, began_ns: int) -> None:
        """Record a renewal, by a call that began at *began_ns*."""
        self.due_ns = began_ns + self._every_ns
        self._lapses_ns = began_ns + BEATS * self._every_ns

    def failed(self, now: int) -> None:
        """Record a renewal with an unknown result: it is tried again while the lease may last."""
        self.due_ns = min(now + max(1, self._every_ns // RETRIES), max(now, self._lapses_ns))

    def denied(self) -> None:
        """Record that the store does not know the lease any more."""
        self._is_denied = True


class Heart:
    """Renews leases in rounds, which go on only while there are any: in a thread, or in the running
    event loop if it *is_in_loop*.

    Each renewal has a task, or one of a few threads, so that a slow store does not delay the leases
    of others. Safe to share among threads. A forked process begins with none: the leases are its
    parent's.
    """

    def __init__(self, clock: Clock = time.monotonic_ns, *, is_in_loop: bool = False) -> None:
        self.now = clock
        self.beats: dict[Beat, None] = {}
        self._most = None if is_in_loop else THREADS
        self._in_flight: set[Beat] = set()
        self._rounds = BackgroundWork(
            self, _NAME, clock, Heart.next_due_ns, Heart.renew_due, in_thread=not is_in_loop
        )
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin as a new process, without leases."""
        self.beats = {}
        self._in_flight = set()
        self._rounds.after_fork()

    @property
    def is_running(self) -> bool:
        """True if there are rounds."""
        return self._rounds.is_running

    def beat(
        self, renew: Callable[[], Effects[bool]], every_ns: int, owner: object | None = None
    ) -> Beat:
        """Renew a lease every *every_ns* until the returned beat is stopped or lost; or until
        *owner*, if there is one, is collected: so *renew* must not refer to it.

        The result of *renew* is True if the lease is still held. If it raises, it is tried again
        soon, and the lease is lost when it has expired: after three times *every_ns*.
        """
        beat = Beat(self, renew, every_ns, owner)
        self.beats[beat] = None
        self._rounds.start(beat.due_ns)
        return beat

    def next_due_ns(self) -> int | None:
        """The time of the next round; None if there is no lease."""
        return min([beat.due_ns for beat in list(self.beats)], default=None)

    def renew_due(self) -> Effects[None]:
        """One round: renew the leases that are due."""
        now = self.now()
        for beat in [one for one in list(self.beats) if one.is_due(now)]:
            if beat.is_lost:
                beat.denied()  # for good, even if a renewal that hangs is granted
            if beat.is_lost or not beat.has_owner:
                beat.stop()
                continue
            beat.begin()
            renewal = self._renewal(beat)
            if self._most is None or len(self._in_flight) < self._most:
                try:
                    yield Background(renewal, _NAME)
                    continue
                except RuntimeError:  # no thread to be had: renewed here
                    pass
            yield from renewal

    def _renewal(self, beat: Beat) -> Effects[None]:
        self._in_flight.add(beat)
        began_ns = self.now()
        try:
            is_held = yield from beat.renew()
        except Exception as error:  # whatever it is, the lease may still be saved
            if not isinstance(error, HeadgateError):  # those of a store are reported elsewhere
                LOG.exception("a lease could not be renewed, and will be tried again")
            beat.failed(self.now())
        else:
            beat.renewed(began_ns) if is_held else beat.denied()
        finally:
            self._in_flight.discard(beat)
        if beat.is_lost:
            beat.stop()
        elif not beat.is_over:
            self._rounds.start(beat.due_ns)


HEART: Final = Heart()
"""The heart of the callers of this process that block."""

_LOOP_HEARTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Heart]] = WeakKeyDictionary()


def loop_heart() -> Heart:
    """The heart of the running event loop."""
    loop = asyncio.get_running_loop()
    heart = _LOOP_HEARTS.get(loop)
    if heart is None:
        weak = ref(loop)  # the heart must not keep its loop alive

        def now() -> int:
            running = weak()
            return time.monotonic_ns() if running is None else round(running.time() * SECOND)

        heart = _LOOP_HEARTS[loop] = Heart(now, is_in_loop=True)
    return heart


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
        return HEART.beat(self.renew, self.every_ns, self.owner)

    async def aperform(self) -> Beat:
        return loop_heart().beat(self.renew, self.every_ns, self.owner)


def new_name() -> str:
    """A name for a lease or a reservation that no other process chooses."""
    return token_hex(12)
