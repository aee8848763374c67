"""A process that serves: from the settings to an exit status.

    build -> rules in force -> listen -> ready ... SIGTERM -> not ready -> linger -> drain -> end

SIGTERM and SIGINT drain, a second one ends the process at once; SIGHUP reads the rules again. A
worker of a supervisor leaves SIGINT to it and drains when the supervisor ends. It ignores a
second SIGTERM: stopping a group of processes (a cgroup, a session) signals the workers as well as
the supervisor, which forwards the signal. The supervisor kills workers that must end.

A supervisor passes the settings over a private pair of sockets, because other users can read a
process's arguments, and its children its environment:

    supervisor -> worker    an `Assignment`, once
    worker -> supervisor    a `Report` when it serves, or a `Failure` when it cannot
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError
from headgate.observability import METRICS
from headgate.runtime.supervisor import CUT_OFF, DONE
from headgate.service.logs import LOG, configure_logs, log, log_denials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.config.service import Settings
    from headgate.service.container import Report
    from headgate.service.live import SharedSnapshots

COLLECTED_AFTER: Final = (200_000, 5, 5)
"""The thresholds of the garbage collector while the service runs.

With CPython's own (700 or 2,000 objects, then 10, then 10) the objects of requests in flight start
collections all the time, and full ones, which go through every cached request in 50 ms, are the
tail latency. Requests leave next to nothing to collect: reference counts free them. 200,000 objects
are more than the requests in flight have. What does become garbage, such as a replaced policy, is
collected at the latest when 5,000,000 objects have been added, some hundreds of megabytes.
"""

SWITCH_INTERVAL: Final = 0.001
"""Seconds after which a thread that computes lets another one run.

A new policy is validated and compiled in a thread. With CPython's 5 ms the event loop waits that
long after each of its system calls, several times per request.
"""

_OTHER_FILES: Final = 256
"""Files open besides connections."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of a worker: its *number*, and the file descriptors of its sockets.

    *shared_snapshots* is the descriptor of the memory that workers share, or None.
    """

    settings: Settings
    number: int
    http: tuple[int, ...]
    grpc: tuple[int, ...]
    shared_snapshots: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a worker cannot start."""

    reason: str


class Worker:
    """Serves on listening sockets until a signal.

    *on_ready* receives a report when it serves. *is_alone*: without a supervisor. With one it has a
    *number* and shares *shared_snapshots* with the others.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        http: Sequence[socket.socket],
        grpc: Sequence[socket.socket],
        on_ready: Callable[[Report], None],
        is_alone: bool,
        number: int = 0,
        shared_snapshots: SharedSnapshots | None = None,
    ) -> None:
        self._settings = settings
        self._http, self._grpc = http, grpc
        self._on_ready = on_ready
        self._is_alone = is_alone
        self._number, self._snapshots = number, shared_snapshots
        self._stopping = asyncio.Event()

    def run(self) -> int:
        """Serve; the exit status. Raises `HeadgateError` if it cannot start."""
        _allow_files(2 * self._settings.max_connections + _OTHER_FILES)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self.serve())

    async def serve(self) -> int:
        """Serve in an event loop, like `run`."""
        from headgate.service.container import make_container
        from headgate.service.listeners import Listeners

        container = make_container(
            self._settings, worker=self._number, shared_snapshots=self._snapshots
        )
        end_denials = log_denials(self._settings)
        try:
            self._listen_to_signals(container)
            listeners = Listeners(container)
            await container.start()
            await listeners.open(self._http, self._grpc)
            tune_collector()
            self._on_ready(container.report())
            await self._stopping.wait()
            container.readiness.is_draining = True
            is_done = await listeners.drain()
        finally:
            await container.aclose()
            end_denials()
        if not is_done:
            message = f"requests were cut off: they took longer than {self._settings.drain:g} s"
            log(message, level=logging.WARNING)
        return DONE if is_done else CUT_OFF

    def stop(self) -> None:
        """Drain; on the second call without a supervisor, end at once."""
        if self._stopping.is_set() and self._is_alone:
            LOG.warning("second signal to stop: ending at once")
            os._exit(CUT_OFF)
        self._stopping.set()

    def _listen_to_signals(self, container: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reread, container)
        if self._is_alone:
            loop.add_signal_handler(signal.SIGINT, self.stop)

    def _reread(self, container: Any) -> None:
        log("SIGHUP: reading the rules again")
        container.reread()


def tune_collector() -> None:
    """Keep collections and other threads out of requests. Call it after startup.

    Objects that exist now are never examined again, later ones more rarely.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    sys.setswitchinterval(SWITCH_INTERVAL)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _allow_files(needed: int) -> None:
    """Raise the limit of open files to what the connections need, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # forbidden: keep the limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main(fileno: int) -> int:
    """Run the worker at the other end of the channel *fileno*; the exit status."""
    for one in (signal.SIGINT, signal.SIGHUP):  # until the worker handles them
        signal.signal(one, signal.SIG_IGN)
    channel = Connection(fileno)
    try:
        assignment: Assignment = channel.recv()
    except EOFError:
        return CUT_OFF
    configure_logs(assignment.settings)
    METRICS.mark(worker=str(assignment.number))
    worker = Worker(
        assignment.settings,
        http=[socket.socket(fileno=number) for number in assignment.http],
        grpc=[socket.socket(fileno=number) for number in assignment.grpc],
        on_ready=lambda report: _ready(channel, worker, report),
        is_alone=False,
        number=assignment.number,
        shared_snapshots=_snapshots(assignment),
    )
    try:
        return worker.run()
    except HeadgateError as error:
        _send(channel, Failure(str(error)))
        return CUT_OFF


def _send(channel: Connection, message: Report | Failure) -> None:
    with suppress(OSError):  # the supervisor has ended
        channel.send(message)


def _snapshots(assignment: Assignment) -> SharedSnapshots | None:
    if assignment.shared_snapshots is None:
        return None
    from headgate.service.live import SharedSnapshots

    return SharedSnapshots(assignment.shared_snapshots, count=assignment.settings.workers)


def _ready(channel: Connection, worker: Worker, report: Report) -> None:
    _send(channel, report)
    # The supervisor sends nothing more: readable means that it has ended.
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(channel.fileno())
        worker.stop()

    loop.add_reader(channel.fileno(), ended)
