"""Supervised child processes: started, checked, restarted when they end or hang, drained.

A `Program` says how to run a process, a `Child` keeps it running, and a `Supervisor` runs several
of them until a signal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.chance import chance
from headgate.errors import HeadgateError
from headgate.runtime.supervised_task import SupervisedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DONE: Final = 0
CUT_OFF: Final = 1
"""The exit status if requests had to be cut off."""

_PARENT_DEATH: Final = str(Path(__file__).with_name("parent_death.py"))
_START_TIMEOUT_S: Final = 60.0
"""Seconds that a program may take until it is ready."""

_HEALTH_INTERVAL_S: Final = 1.0
"""Seconds between two health checks."""

_READY_INTERVAL_S: Final = 0.02
_LONGEST_LINE: Final = 64 * 1024


class StartError(HeadgateError):
    """A program cannot start."""


class Report(Protocol):
    """Logs *message* with *fields*."""

    def __call__(self, message: str, *, level: int = ..., **fields: object) -> None: ...


class Backoff:
    """Exponential backoff with jitter between restarts, at most *longest* seconds.

    After a run of *steady* seconds the delay starts from the beginning.
    """

    def __init__(
        self,
        *,
        first: float = 0.1,
        longest: float = 10.0,
        steady: float = 10.0,
        jitter: Callable[[], float] = chance,
    ) -> None:
        self._first, self._longest, self._steady = first, longest, steady
        self._jitter = jitter
        self._next = first

    def after(self, lasted: float) -> float:
        """Seconds to wait after a run of *lasted* seconds: from half of the delay to all of it."""
        if lasted >= self._steady:
            self._next = self._first
        delay, self._next = self._next, min(self._longest, 2 * self._next)
        return delay * (0.5 + self._jitter() / 2)


class ProcessLog(Protocol):
    """Reads the lines of a program; *last_error* is the reason of its end, if it logged one."""

    @property
    def last_error(self) -> str: ...

    def read_line(self, line: str) -> None: ...


class Program(ABC):
    """A program that can run as a child process. *name* is its name in messages."""

    name: str
    hang_timeout: float
    """Seconds without a passed health check after which the program is killed."""

    log: ProcessLog | None = None
    """Reads its stderr; None if that is the one of this process."""

    @property
    def files(self) -> Sequence[int]:
        """File descriptors that it inherits."""
        return ()

    def begin(self) -> None:
        """Prepare a start: remove the remains of the run before."""
        return

    def started(self) -> None:
        """Go on after its process has been created, or could not be."""
        return

    @abstractmethod
    def call(self) -> Sequence[str]:
        """The path of the program and its arguments."""

    def environment(self) -> Mapping[str, str]:
        """All environment variables of the program."""
        return os.environ

    def last_error(self) -> str:
        """The reason of the end as reported by the program; empty if it reported none."""
        return "" if self.log is None else self.log.last_error

    @abstractmethod
    async def is_ready(self) -> bool:
        """True when the program is ready. Polled from the start on."""

    @abstractmethod
    async def is_healthy(self) -> bool:
        """True if the program responds. Polled once it is ready."""


def dying_with_parent(call: Sequence[str]) -> list[str]:
    """*call*, of a program that the kernel kills when this process ends."""
    return [sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid()), *call]


class Child:
    """Runs *program* until `stop`, and restarts it when it ends or hangs.

    It has its own session, so that Ctrl-C at the terminal reaches this process only, which stops
    its children in order.
    """

    def __init__(self, program: Program, *, report: Report, backoff: Backoff | None = None) -> None:
        self._program = program
        self._report = report
        self._backoff = backoff or Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._watching = SupervisedTask(
            self._watch, name=f"the watch over {program.name}", pause=_HEALTH_INTERVAL_S
        )
        self._is_wanted = True
        self.is_ready = False
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The process id, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises `HeadgateError` if that fails."""
        try:
            await self._run_until_ready()
        except BaseException:
            await self.kill()
            raise
        self._watching.start()

    def signal(self, which: Signals) -> None:
        """Send it a signal, if it is ready: before, it might not handle it."""
        if self.is_ready:
            self._send(which)

    async def stop(self, *, within: float) -> bool:
        """Terminate it, and kill it after *within* seconds. True if its exit status is 0."""
        await self.disable_restart()
        process = self._process
        if process is None:
            return True
        self._send(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await process.wait()
        # One that was not ready yet has no requests, and does not handle signals.
        is_early = not self.is_ready and process.returncode == -signal.SIGTERM
        is_done = process.returncode == 0 or is_early
        if process.returncode is None:
            self._report(f"{self._program.name} did not end in time: killed", level=logging.ERROR)
        await self.kill()
        return is_done

    async def kill(self) -> None:
        """Kill it and its children."""
        await self.disable_restart()
        await self._kill_and_wait()

    def kill_now(self) -> None:
        """Kill it without waiting for the end."""
        self._is_wanted = False
        self._send_kill()

    async def disable_restart(self) -> None:
        """Do not restart it when it ends."""
        self._is_wanted = False
        await self._watching.aclose()

    def _send(self, which: Signals) -> None:
        if self.pid is not None:
            # `Process.send_signal` would reap a process that has ended, and the event loop would
            # miss its exit status.
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    def _send_kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _kill_and_wait(self) -> None:
        """Kill it and its children, and wait for the end."""
        self._send_kill()
        if self._process is not None:
            await self._process.wait()
        await self._read_all()

    async def _run_until_ready(self) -> None:
        self.is_ready = False
        program = self._program
        program.begin()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *program.call(),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=None if program.log is None else asyncio.subprocess.PIPE,
                env=dict(program.environment()),
                pass_fds=program.files,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"{program.name} cannot start: {error.strerror or error}") from error
        finally:
            program.started()
        self.starts += 1
        if process.stderr is not None and program.log is not None:
            self._reader = asyncio.create_task(_read_lines(process.stderr, program.log))
        await self._wait_until_ready(process)
        self.is_ready = True

    async def _wait_until_ready(self, process: asyncio.subprocess.Process) -> None:
        serving = asyncio.create_task(self._until_ready())
        ending = asyncio.create_task(process.wait())
        try:
            await asyncio.wait(
                [serving, ending], timeout=_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if serving.done():
                serving.result()
                return
            if ending.done():
                await self._read_all()
                raise StartError(self._reason_of(process.returncode))
            raise StartError(f"{self._program.name} is not ready after {_START_TIMEOUT_S:g} s")
        finally:
            for task in (serving, ending):
                task.cancel()
            await asyncio.wait([serving, ending])

    async def _until_ready(self) -> None:
        while not await self._program.is_ready():  # noqa: ASYNC110 - another process sends no event
            await asyncio.sleep(_READY_INTERVAL_S)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        name = self._program.name
        while True:
            began = loop.time()
            why = await self._until_end()
            if not self._is_wanted:
                return
            await self._kill_and_wait()  # its workers may still hold the ports
            pause = self._backoff.after(loop.time() - began)
            while True:
                message = f"{why}; restarting in {pause:.2g} s"
                self._report(message, level=logging.ERROR, event="ended", program=name)
                await asyncio.sleep(pause)
                try:
                    await self._run_until_ready()
                except HeadgateError as error:
                    await self._kill_and_wait()
                    why = str(error)
                    pause = self._backoff.after(0.0)
                else:
                    break
            self._report(f"{name} is ready again", event="again", program=name, pid=self.pid)

    async def _until_end(self) -> str:
        """Wait for the end, or kill it if it hangs, and return the reason."""
        process = self._process
        if process is None:
            return f"{self._program.name} is not running"
        loop = asyncio.get_running_loop()
        healthy_at = loop.time()
        ending = asyncio.create_task(process.wait())
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=_HEALTH_INTERVAL_S)
                if ending.done() or await self._is_healthy():
                    healthy_at = loop.time()
                elif loop.time() - healthy_at >= self._program.hang_timeout:
                    self._send_kill()
                    await ending
                    silent = f"did not respond for {self._program.hang_timeout:g} s and was killed"
                    return f"{self._program.name} {silent}"
        finally:
            ending.cancel()
        await self._read_all()
        return self._reason_of(process.returncode)

    async def _is_healthy(self) -> bool:
        try:
            async with asyncio.timeout(self._program.hang_timeout):
                return await self._program.is_healthy()
        except TimeoutError:
            return False

    def _reason_of(self, status: int | None) -> str:
        message = f"{self._program.name} ended ({exit_reason(status)})"
        words = self._program.last_error()
        return f"{message}: {words}" if words else message

    async def _read_all(self) -> None:
        """Wait until all its lines are read; its children may keep the pipe open."""
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=1.0)


async def _read_lines(stream: asyncio.StreamReader, log: ProcessLog) -> None:
    rest = b""
    while chunk := await stream.read(_LONGEST_LINE):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            log.read_line(line.decode("utf-8", "backslashreplace"))
        rest = rest[:_LONGEST_LINE]
    if rest:
        log.read_line(rest.decode("utf-8", "backslashreplace"))


def exit_reason(status: int | None) -> str:
    """The exit status of a process in words."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


class Supervisor(ABC):
    """Runs children until SIGTERM or SIGINT, which drains them; a second signal kills them."""

    children: tuple[Child, ...] = ()

    def __init__(self, *, report: Report) -> None:
        self._report = report
        self._stopping = asyncio.Event()
        self._draining: asyncio.Task[bool] | None = None
        self.is_forced = False

    async def serve(self) -> int:
        """Run all of it; the exit status. Raises `HeadgateError`, and nothing runs then."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        async with AsyncExitStack() as stack:
            for child in self.children:
                stack.push_async_callback(child.kill)
            if not await self._is_started(stack):
                return CUT_OFF if self.is_forced else DONE
            await self._stopping.wait()
            self._draining = asyncio.create_task(self.drain())
            await asyncio.wait([self._draining])
            return DONE if not self.is_forced and self._draining.result() else CUT_OFF

    def stop(self) -> None:
        """Drain; on the second call end at once."""
        if self._stopping.is_set():
            self._report("second signal: stopping at once", level=logging.WARNING)
            self.is_forced = True
            for child in self.children:
                child.kill_now()
            if self._draining is not None:
                self._draining.cancel()
        self._stopping.set()

    @abstractmethod
    async def start(self, stack: AsyncExitStack) -> None:
        """Start everything, to be closed by *stack*. Raises `HeadgateError` if that fails."""

    @abstractmethod
    async def drain(self) -> bool:
        """Drain and stop everything; false if requests were cut off."""

    @abstractmethod
    def reload(self) -> None:
        """Read the rules again (SIGHUP)."""

    async def _is_started(self, stack: AsyncExitStack) -> bool:
        """Start everything; False if it was stopped before that was done."""
        starting: asyncio.Task[Any] = asyncio.create_task(self.start(stack))
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            self._report("stopped before it was ready", event="stopped")
            return False
        starting.result()
        return True
