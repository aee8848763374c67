"""A supervised child process: started, checked, and restarted when it ends or hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headgate.gateway.processes.logs import LOG, GatewayError, report
from headgate.runtime.supervised_task import SupervisedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


FIRST: Final = 0.1
LONGEST: Final = 10.0
STEADY: Final = 10.0
"""After a run of so many seconds the delay starts from the beginning."""


class Backoff:
    """Exponential backoff with jitter between restarts, at most *longest* seconds."""

    def __init__(
        self,
        *,
        first: float = FIRST,
        longest: float = LONGEST,
        steady: float = STEADY,
        jitter: Callable[[], float] = random.random,
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


_PARENT_DEATH: Final = str(Path(__file__).with_name("parent_death.py"))
_START_TIMEOUT_S: Final = 60.0
"""Seconds that a program may take until it is ready."""

_HEALTH_INTERVAL_S: Final = 1.0
"""Seconds between two health checks."""

_MOST: Final = 64 * 1024
"""Bytes of the longest line of a program."""


class Program(Protocol):
    """A program that can run as a child process."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def hang_timeout(self) -> float:
        """Seconds without a passed health check after which the program is killed."""

    def begin(self) -> None:
        """Prepare a start: remove the remains of the run before."""

    def call(self) -> Sequence[str]:
        """The path of the program and its arguments."""

    def environment(self) -> Mapping[str, str]:
        """All environment variables of the program."""

    def read_line(self, line: str) -> None:
        """Process a *line* of stderr."""

    def last_error(self) -> str:
        """The reason of the end as logged by the program; empty if it logged none."""

    async def is_ready(self) -> bool:
        """True when the program is ready. Polled from the start on."""

    async def is_healthy(self) -> bool:
        """True if the program responds. Polled once it is ready."""


class Child:
    """Runs *program* until `stop`, and restarts it when it ends or hangs.

    The kernel kills it when this process ends. It has its own session, so that Ctrl-C at the
    terminal reaches this process only, which stops its children in order.
    """

    def __init__(self, program: Program, *, backoff: Backoff | None = None) -> None:
        self._program = program
        self._backoff = backoff or Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._watching = SupervisedTask(
            self._watch, name=f"the watch over {program.name}", pause=_HEALTH_INTERVAL_S, log=LOG
        )
        self._is_wanted = True
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The process id, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises `GatewayError` if that fails."""
        try:
            await self._run_until_ready()
        except BaseException:
            await self.kill()
            raise
        self._watching.start()

    def signal(self, which: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.pid is not None:
            # `Process.send_signal` would reap a process that has ended, and the event loop would
            # miss its exit status.
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    async def stop(self, *, within: float) -> bool:
        """Terminate it, and kill it after *within* seconds. True if its exit status is 0."""
        await self.disable_restart()
        process = self._process
        if process is None:
            return True
        self.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await process.wait()
        is_done = process.returncode == 0
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

    async def disable_restart(self) -> None:
        """Do not restart it when it ends."""
        self._is_wanted = False
        await self._watching.aclose()

    async def _run_until_ready(self) -> None:
        self._program.begin()
        call = [sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid()), *self._program.call()]
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *call,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._program.environment()),
                start_new_session=True,
            )
        except OSError as error:
            message = f"{self._program.name} cannot start: {error.strerror or error}"
            raise GatewayError(message) from error
        self.starts += 1
        if process.stderr is not None:
            self._reader = asyncio.create_task(self._read_lines(process.stderr))
        await self._wait_until_ready(process)

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
                raise GatewayError(self._reason_of(process.returncode))
            raise GatewayError(f"{self._program.name} is not ready after {_START_TIMEOUT_S:g} s")
        finally:
            for task in (serving, ending):
                task.cancel()
            await asyncio.wait([serving, ending])

    async def _until_ready(self) -> None:
        while not await self._program.is_ready():  # noqa: ASYNC110 - another process sends no event
            await asyncio.sleep(0.02)

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
                report(message, level=logging.ERROR, event="ended", program=name)
                await asyncio.sleep(pause)
                try:
                    await self._run_until_ready()
                except GatewayError as error:
                    await self._kill_and_wait()
                    why = str(error)
                    pause = self._backoff.after(0.0)
                else:
                    break
            report(f"{name} is ready again", event="again", program=name, pid=self.pid)

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

    async def _read_lines(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stream.read(_MOST):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._program.read_line(line.decode("utf-8", "backslashreplace"))
            rest = rest[:_MOST]
        if rest:
            self._program.read_line(rest.decode("utf-8", "backslashreplace"))


def exit_reason(status: int | None) -> str:
    """The exit status of a process in words."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
