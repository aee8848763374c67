"""Several workers on the same sockets, kept alive by a process that serves nothing itself.

It binds the sockets, so that an address in use is reported before anything is started. A worker
that dies is replaced, with growing pauses; one that fails at the first start ends the whole
service. The workers end by themselves when this process ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from headgate.runtime.supervisor import Child, Program, StartError, Supervisor
from headgate.service.container import Report
from headgate.service.live.envoy_counts import write_totals
from headgate.service.live.shared_snapshots import SharedSnapshotError, SharedSnapshots, new_file
from headgate.service.logs import LOG, log
from headgate.service.worker import Assignment, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AsyncExitStack

    from headgate.config.service import Settings
    from headgate.service.sockets import BoundSockets

_MORE: Final = 5.0
"""Seconds beyond its own drain time before a worker is killed."""


class WorkerProgram(Program):
    """A worker as its supervisor sees it. It is healthy as long as its end of the channel is open:
    a thread that hangs in the kernel may keep an ended worker from exiting."""

    hang_timeout = _MORE

    def __init__(self, assignment: Assignment) -> None:
        self.name = f"worker {assignment.number}"
        self.assignment = assignment
        self._channel: Connection | None = None
        self._theirs: socket.socket | None = None
        self._failure = ""
        self.report: Report | None = None

    @property
    def files(self) -> Sequence[int]:
        one = self.assignment
        shared = () if one.shared_snapshots is None else (one.shared_snapshots,)
        theirs = () if self._theirs is None else (self._theirs.fileno(),)
        return (*theirs, *one.http, *one.grpc, *shared)

    def begin(self) -> None:
        self._close()
        ours, self._theirs = socket.socketpair()
        self._channel = Connection(ours.detach())
        self._failure, self.report = "", None

    def call(self) -> Sequence[str]:
        fileno = "" if self._theirs is None else str(self._theirs.fileno())
        return [sys.executable, "-P", "-m", "headgate.service", fileno]

    def started(self) -> None:
        if self._theirs is not None:
            self._theirs.close()
        if self._channel is not None:
            with suppress(OSError):  # it has died already
                self._channel.send(self.assignment)
            asyncio.get_running_loop().add_reader(self._channel.fileno(), self._receive)

    def last_error(self) -> str:
        return self._failure

    async def is_ready(self) -> bool:
        return self.report is not None

    async def is_healthy(self) -> bool:
        return self._channel is not None

    def _receive(self) -> None:
        try:
            message = None if self._channel is None else self._channel.recv()
        except (EOFError, OSError):
            message = None
        match message:
            case Report():
                self.report = message
            case Failure(reason):
                self._failure = reason
            case _:
                self._close()

    def _close(self) -> None:
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None


class Workers:
    """The workers that *settings* ask for, on *sockets*, as children of a supervisor.

    They write to the stderr of this process. *program* is their class. Close it at the end.
    """

    def __init__(
        self,
        settings: Settings,
        sockets: BoundSockets,
        program: type[WorkerProgram] = WorkerProgram,
    ) -> None:
        self._settings = settings
        self._sockets = sockets
        self._snapshots_file = _new_snapshots_file()
        self.programs = [program(self._assignment(n)) for n in range(settings.workers)]
        self.children = tuple(Child(one, report=log) for one in self.programs)

    async def start(self) -> Report:
        """Start all of them; the report of the first one. Raises `HeadgateError`."""
        await asyncio.gather(*(child.start() for child in self.children))
        report = self.programs[0].report
        if report is None:
            raise StartError("worker 0 ended as soon as it was ready")
        return report

    async def drain(self) -> bool:
        """Drain all of them; false if requests were cut off."""
        # The workers have copies. Connections must not wait on a socket that no worker accepts
        # from.
        self._sockets.close()
        within = self._settings.linger + self._settings.drain + _MORE
        return all(await asyncio.gather(*(child.stop(within=within) for child in self.children)))

    def reload(self) -> None:
        """Let all of them read the rules again."""
        for child in self.children:
            child.signal(signal.SIGHUP)

    def report_envoy(self, totals: Mapping[str, tuple[int, int]]) -> None:
        """Report what Envoy has allowed and denied by itself, by rule."""
        if self._snapshots_file is not None:
            shared = SharedSnapshots(self._snapshots_file, count=self._settings.workers)
            with suppress(SharedSnapshotError):  # the next report has it
                write_totals(shared, totals)

    def close(self) -> None:
        """Free the memory that they share."""
        if self._snapshots_file is not None:
            os.close(self._snapshots_file)
            self._snapshots_file = None

    def _assignment(self, number: int) -> Assignment:
        http = tuple(one.sock.fileno() for one in self._sockets.http)
        grpc = tuple(one.sock.fileno() for one in self._sockets.grpc[number])
        return Assignment(self._settings, number, http, grpc, self._snapshots_file)


class WorkerSupervisor(Supervisor):
    """Runs *workers* and nothing else.

    *on_ready* receives the report of a worker when all of them serve for the first time.
    """

    def __init__(self, workers: Workers, *, on_ready: Callable[[Report], None]) -> None:
        super().__init__(report=log)
        self._workers = workers
        self._on_ready = on_ready
        self.children = workers.children

    def run(self) -> int:
        """Serve; the exit status. Raises `StartError` if the workers cannot start."""
        with asyncio.Runner() as runner:
            return runner.run(self.serve())

    async def start(self, stack: AsyncExitStack) -> None:
        self._on_ready(await self._workers.start())

    async def drain(self) -> bool:
        return await self._workers.drain()

    def reload(self) -> None:
        self._workers.reload()


def _new_snapshots_file() -> int | None:
    """Create the memory that workers share for live figures; None if that fails."""
    try:
        return new_file()
    except OSError as error:
        LOG.warning(
            "no shared memory (%s): each worker shows only its own figures", error.strerror or error
        )
        return None
