"""Several workers on the same sockets, kept alive by a process that serves nothing itself.

It binds the sockets, so that an address in use is reported before anything is started. A worker
that dies is replaced, with growing pauses; one that fails at the first start ends the whole
service. The workers end by themselves when this process is gone.
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
from headgate.service.logs import LOG, log

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.config.service import Settings
    from headgate.service.sockets import BoundSockets

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
STEADY: Final = 10.0
"""Seconds of service after which a worker is replaced without a pause."""

_MORE: Final = 5.0
"""Seconds beyond its own drain time before a worker is killed."""

_LOOK: Final = 0.01

_EARLY_DEATHS: Final = 3
"""Workers that may die without a reason before all have served, until the service fails."""


class StartError(HeadgateError):
    """The workers cannot start."""


@dataclass(slots=True, eq=False)
class _WorkerProcess:
    """A worker as its supervisor sees it."""

    number: int
    process: subprocess.Popen[bytes]
    channel: SupervisorEnd
    began: float
    failure: str | None = None
    is_ready: bool = False


class Supervisor:
    """Runs the workers that *settings* ask for on *sockets*.

    *on_ready* receives the report of a worker when all of them serve for the first time.
    """

    def __init__(
        self, settings: Settings, sockets: BoundSockets, *, on_ready: Callable[[Report], None]
    ) -> None:
        self._settings = settings
        self._sockets = sockets
        self._on_ready = on_ready
        self._workers: dict[int, _WorkerProcess] = {}
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
        """Serve in an event loop, like `run`."""
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
        """Drain all workers; kill them on the second call."""
        if self._is_stopping:
            LOG.warning("second signal to stop: ending at once")
            self._kill()
            return
        self._is_stopping = True
        for waiting in self._waiting.values():
            waiting.cancel()
        for worker in self._workers.values():
            worker.process.send_signal(signal.SIGTERM)
        # The workers have copies. Connections must not wait on a socket that no worker accepts
        # from.
        self._sockets.close()
        timeout = self._settings.linger + self._settings.drain + _MORE
        asyncio.get_running_loop().call_later(timeout, self._kill)
        self._check_end()

    def _start(self, number: int) -> None:
        try:
            self._workers[number] = worker = self._spawn(number)
        except OSError as error:
            self._cannot_start(number, f"no process for it: {error.strerror or error}")
            return
        asyncio.get_running_loop().add_reader(worker.channel.fileno(), self._on_message, worker)

    def _spawn(self, number: int) -> _WorkerProcess:
        """Start a worker and send its assignment. Raises `OSError` if there can be no process."""
        ours, theirs = socket.socketpair()
        http = tuple(one.sock.fileno() for one in self._sockets.http)
        grpc = tuple(one.sock.fileno() for one in self._sockets.grpc[number])
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
        return _WorkerProcess(number, process, channel, asyncio.get_running_loop().time())

    def _cannot_start(self, number: int, reason: str) -> None:
        if self._has_served:
            self._start_later(number, reason)
            return
        self._failure = f"worker {number} cannot start: {reason}"
        self.stop()

    def _on_message(self, worker: _WorkerProcess) -> None:
        match worker.channel.receive():
            case Report() as report:
                self._serves(worker, report)
            case Failure(reason):
                worker.failure = reason
            case None:
                self._gone(worker)

    def _serves(self, worker: _WorkerProcess, report: Report) -> None:
        worker.is_ready = True
        if self._has_served:
            log(
                f"worker {worker.number} serves again", worker=worker.number, pid=worker.process.pid
            )
        elif len(self._workers) == self._settings.workers and all(
            one.is_ready for one in self._workers.values()
        ):
            self._has_served = True
            self._on_ready(report)

    def _gone(self, worker: _WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.channel.fileno())
        worker.channel.close()
        # It usually ends at once, but a thread may hang in the kernel.
        loop.call_later(_MORE, worker.process.kill)
        self._reap(worker)

    def _reap(self, worker: _WorkerProcess) -> None:
        status = worker.process.poll()
        if status is None:
            asyncio.get_running_loop().call_later(_LOOK, self._reap, worker)
            return
        del self._workers[worker.number]
        if self._is_stopping:
            # A worker stopped before it handles signals has no requests to cut off.
            is_early = status == -signal.SIGTERM and not worker.is_ready
            self._status = self._status or int(status != 0 and not is_early)
        elif not self._has_served:
            self._failed_early(worker, status)
        else:
            self._replace(worker, status)
        self._check_end()

    def _failed_early(self, worker: _WorkerProcess, status: int) -> None:
        """Handle a worker that ended before all have served."""
        self._early_deaths += 1
        if worker.failure is None and self._early_deaths < _EARLY_DEATHS:
            LOG.warning("worker %d ended (%s) before it served", worker.number, _ending(status))
            self._start(worker.number)
            return
        self._failure = worker.failure or f"worker {worker.number} ended: {_ending(status)}"
        self.stop()

    def _replace(self, worker: _WorkerProcess, status: int) -> None:
        loop = asyncio.get_running_loop()
        is_steady = worker.is_ready and loop.time() - worker.began >= STEADY
        reason = f"{worker.failure or _ending(status)} (process {worker.process.pid})"
        self._start_later(worker.number, reason, is_steady=is_steady)

    def _start_later(self, number: int, reason: str, *, is_steady: bool = False) -> None:
        """Schedule a replacement for a worker that ended or could not start."""
        before = self._pauses[number]
        pause = 0.0 if is_steady else min(LONGEST_PAUSE, 2 * before or FIRST_PAUSE)
        self._pauses[number] = pause
        message = f"worker {number} ended: {reason}; another starts in {pause:g} s"
        log(message, level=logging.ERROR, worker=number)
        loop = asyncio.get_running_loop()
        self._waiting[number] = loop.call_later(pause, self._start, number)

    def _reread(self) -> None:
        """Make the workers that serve read the rules again; others are about to."""
        for worker in self._workers.values():
            if worker.is_ready:
                worker.process.send_signal(signal.SIGHUP)

    def _kill(self) -> None:
        for worker in self._workers.values():
            self._status = 1
            LOG.error("worker %d did not end in time: killed", worker.number)
            worker.process.kill()

    def _check_end(self) -> None:
        if self._is_stopping and not self._workers:
            self._ended.set()


def _new_snapshots_file() -> int | None:
    """Create the memory that workers share for live figures; None if that fails."""
    try:
        return new_file()
    except OSError as error:
        LOG.warning(
            "no shared memory (%s): each worker shows only its own figures", error.strerror or error
        )
        return None


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
