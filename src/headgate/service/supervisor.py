"""Several workers on the same sockets, kept alive by a process that serves nothing itself.

It binds, so that a port that is taken is told before anything is started. A worker that dies is
replaced, with growing pauses; one that cannot even start the first time ends the whole service. The
workers end by themselves when this process is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import HeadgateError
from headgate.service.channel import Assignment, Failure, Report, SupervisorEnd
from headgate.service.live.shared_snapshots import new_file
from headgate.service.logs import LOG, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.config.service import Settings
    from headgate.service.sockets import Listeners

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
STEADY: Final = 10.0
"""Who has served for so many seconds is replaced without a pause."""

_MORE: Final = 5.0
"""How many seconds longer than its own drain a worker may take to end."""

_LOOK: Final = 0.01

_EARLY_DEATHS: Final = 3
"""How many workers may die, without a word and before any has served, until that is the end."""


class StartError(HeadgateError):
    """The workers cannot start."""


@dataclass(slots=True, eq=False)
class _Hand:
    """A worker as its supervisor sees it."""

    number: int
    process: subprocess.Popen[bytes]
    channel: SupervisorEnd
    began: float
    failure: str | None = None
    is_ready: bool = False


class Supervisor:
    """Runs the workers that *settings* ask for on *listeners*.

    *on_ready* hears the report of a worker once all of them serve for the first time.
    """

    def __init__(
        self, settings: Settings, listeners: Listeners, *, on_ready: Callable[[Report], None]
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._on_ready = on_ready
        self._hands: dict[int, _Hand] = {}
        self._pauses = dict.fromkeys(range(settings.workers), 0.0)
        self._waiting: dict[int, asyncio.TimerHandle] = {}
        self._ended = asyncio.Event()
        self._early_deaths = 0
        self._has_served = False
        self._is_stopping = False
        self._status = 0
        self._failure: str | None = None
        self._snapshots_file = _new_snapshots_file()

    def run(self) -> int:
        """Serve; the exit status. Raises `StartError` if the workers cannot start."""
        try:
            with asyncio.Runner() as runner:
                return runner.run(self.serve())
        finally:
            if self._snapshots_file is not None:
                os.close(self._snapshots_file)
                self._snapshots_file = None

    async def serve(self) -> int:
        """As `run`, in an event loop."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reread)
        for number in range(self._settings.workers):
            if not self._is_stopping:
                self._start(number)
        await self._ended.wait()
        if self._failure is not None:
            raise StartError(self._failure)
        return self._status

    def stop(self) -> None:
        """Have all workers drain; end them at once if they have been told before."""
        if self._is_stopping:
            LOG.warning("told to stop again: ending at once")
            self._kill()
            return
        self._is_stopping = True
        for waiting in self._waiting.values():
            waiting.cancel()
        for hand in self._hands.values():
            hand.process.send_signal(signal.SIGTERM)
        # The workers have copies. Nobody shall wait where only this process would listen.
        self._listeners.close()
        patience = self._settings.linger + self._settings.drain + _MORE
        asyncio.get_running_loop().call_later(patience, self._kill)
        self._check_end()

    def _start(self, number: int) -> None:
        try:
            self._hands[number] = hand = self._begun(number)
        except OSError as error:
            self._cannot_start(number, f"no process for it: {error.strerror or error}")
            return
        asyncio.get_running_loop().add_reader(hand.channel.fileno(), self._heard, hand)

    def _begun(self, number: int) -> _Hand:
        """A worker, told what to do. Raises `OSError` if the machine has none to give."""
        ours, theirs = socket.socketpair()
        http = tuple(one.sock.fileno() for one in self._listeners.http)
        grpc = tuple(one.sock.fileno() for one in self._listeners.grpc[number])
        call = [sys.executable, "-P", "-m", "headgate.service.worker", str(theirs.fileno())]
        shared_snapshots = () if self._snapshots_file is None else (self._snapshots_file,)
        with ours, theirs:
            process = subprocess.Popen(  # noqa: S603 - our own module
                call,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *http, *grpc, *shared_snapshots),
            )
            channel = SupervisorEnd(ours.detach())
        channel.assign(Assignment(self._settings, number, http, grpc, self._snapshots_file))
        return _Hand(number, process, channel, asyncio.get_running_loop().time())

    def _cannot_start(self, number: int, reason: str) -> None:
        if self._has_served:
            self._start_later(number, reason)
            return
        self._failure = f"worker {number} cannot start: {reason}"
        self.stop()

    def _heard(self, hand: _Hand) -> None:
        match hand.channel.hear():
            case Report() as report:
                self._serves(hand, report)
            case Failure(reason):
                hand.failure = reason
            case None:
                self._gone(hand)

    def _serves(self, hand: _Hand, report: Report) -> None:
        hand.is_ready = True
        if self._has_served:
            tell(f"worker {hand.number} serves again", worker=hand.number, pid=hand.process.pid)
        elif len(self._hands) == self._settings.workers and all(
            one.is_ready for one in self._hands.values()
        ):
            self._has_served = True
            self._on_ready(report)

    def _gone(self, hand: _Hand) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(hand.channel.fileno())
        hand.channel.close()
        # As a rule it is over at once; but its last thread may hang where nothing can be done.
        loop.call_later(_MORE, hand.process.kill)
        self._bury(hand)

    def _bury(self, hand: _Hand) -> None:
        status = hand.process.poll()
        if status is None:
            asyncio.get_running_loop().call_later(_LOOK, self._bury, hand)
            return
        del self._hands[hand.number]
        if self._is_stopping:
            # Who is told to stop before it listens to signals has nothing that could be cut off.
            is_unheard = status == -signal.SIGTERM and not hand.is_ready
            self._status = self._status or int(status != 0 and not is_unheard)
        elif not self._has_served:
            self._failed_early(hand, status)
        else:
            self._replace(hand, status)
        self._check_end()

    def _failed_early(self, hand: _Hand, status: int) -> None:
        """A worker has ended before all have served."""
        self._early_deaths += 1
        if hand.failure is None and self._early_deaths < _EARLY_DEATHS:
            LOG.warning("worker %d ended (%s) before it served", hand.number, _ending(status))
            self._start(hand.number)
            return
        self._failure = hand.failure or f"worker {hand.number} ended: {_ending(status)}"
        self.stop()

    def _replace(self, hand: _Hand, status: int) -> None:
        loop = asyncio.get_running_loop()
        is_steady = hand.is_ready and loop.time() - hand.began >= STEADY
        reason = f"{hand.failure or _ending(status)} (process {hand.process.pid})"
        self._start_later(hand.number, reason, is_steady=is_steady)

    def _start_later(self, number: int, reason: str, *, is_steady: bool = False) -> None:
        """Have another worker instead of one that has ended, or of one that could not begin."""
        before = self._pauses[number]
        pause = 0.0 if is_steady else min(LONGEST_PAUSE, 2 * before or FIRST_PAUSE)
        self._pauses[number] = pause
        told = f"worker {number} ended: {reason}; another starts in {pause:g} s"
        tell(told, level=logging.ERROR, worker=number)
        loop = asyncio.get_running_loop()
        self._waiting[number] = loop.call_later(pause, self._start, number)

    def _reread(self) -> None:
        """Have the workers look at the rules again; who is about to serve is about to look."""
        for hand in self._hands.values():
            if hand.is_ready:
                hand.process.send_signal(signal.SIGHUP)

    def _kill(self) -> None:
        for hand in self._hands.values():
            self._status = 1
            LOG.error("worker %d did not end in time: killed", hand.number)
            hand.process.kill()

    def _check_end(self) -> None:
        if self._is_stopping and not self._hands:
            self._ended.set()


def _new_snapshots_file() -> int | None:
    """The memory that workers share, to tell what the others do; they serve without it too."""
    try:
        return new_file()
    except OSError as error:
        told = "each worker will tell of itself only: no memory to share (%s)"
        LOG.warning(told, error.strerror or error)
        return None


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
