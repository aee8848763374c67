"""A program that is to run: started, watched, and started again when it ends or hangs."""

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

from headgate.gateway.processes.logs import LOG, GatewayError, tell
from headgate.runtime.supervised_task import SupervisedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# How long to wait before a program that has ended is started again.


FIRST: Final = 0.1
LONGEST: Final = 10.0
STEADY: Final = 10.0
"""Who has run for so many seconds is started again as if it were the first time."""


class Pauses:
    """Twice as long from one end to the next, up to *longest* seconds, and never all at once."""

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
        """Seconds to wait after a run that *lasted* so many: from half of its turn to all of it."""
        if lasted >= self._steady:
            self._next = self._first
        turn, self._next = self._next, min(self._longest, 2 * self._next)
        return turn * (0.5 + self._jitter() / 2)


_LEASH: Final = str(Path(__file__).with_name("parent_death.py"))
_START: Final = 60.0
"""How many seconds a program may take until it serves."""

_PULSE: Final = 1.0
"""Seconds between two looks at whether it still answers."""

_MOST: Final = 64 * 1024
"""The longest line of a program's that is heard."""


class Program(Protocol):
    """What is run."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def hung(self) -> float:
        """The seconds without an answer after which it is taken for hung."""

    def begin(self) -> None:
        """It is about to be started: clear away what the last one has left."""

    def call(self) -> Sequence[str]:
        """The program, by its path, and its arguments."""

    def environment(self) -> Mapping[str, str]:
        """All variables that it gets."""

    def hear(self, line: str) -> None:
        """It has said *line* on stderr."""

    def last_words(self) -> str:
        """Why it has ended, as far as it said so; "" if it did not."""

    async def serves(self) -> bool:
        """Whether it does what it is there for. Asked from its start until it does."""

    async def answers(self) -> bool:
        """Whether it still answers. Asked from then on."""


class Child:
    """Runs *program* until it is told to stop.

    It ends when this process ends, however that does. It is a session of its own: a Ctrl-C at the
    terminal is for this process alone, which ends its children in their order.
    """

    def __init__(self, program: Program, *, pauses: Pauses | None = None) -> None:
        self._program = program
        self._pauses = pauses or Pauses()
        self._process: asyncio.subprocess.Process | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._watching = SupervisedTask(
            self._watch, name=f"the watch over {program.name}", pause=_PULSE, log=LOG
        )
        self._is_wanted = True
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Its process's id, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Start it, and wait until it serves. Raises `GatewayError`, and it does not run then."""
        try:
            await self._run_until_it_serves()
        except BaseException:
            await self.kill()
            raise
        self._watching.start()

    def signal(self, which: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.pid is not None:
            # Not by the process's own method: that takes the exit status of one that has ended,
            # and the loop, which waits for it, never learns it.
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    async def stop(self, *, within: float) -> bool:
        """End it: asked to, and after *within* seconds killed. Whether it has ended by itself,
        with the exit status 0."""
        await self.let_go()
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
        """End it, and all that it has started, at once."""
        await self.let_go()
        await self._killed()

    def kill_now(self) -> None:
        """As `kill`, without waiting for the end."""
        self._is_wanted = False
        self._send_kill()

    def _send_kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _killed(self) -> None:
        """End it, and what it may have left running, and wait for that."""
        self._send_kill()
        if self._process is not None:
            await self._process.wait()
        await self._heard_all()

    async def let_go(self) -> None:
        """Start it no more if it ends from now on."""
        self._is_wanted = False
        await self._watching.aclose()

    async def _run_until_it_serves(self) -> None:
        self._program.begin()
        call = [sys.executable, "-I", "-S", _LEASH, str(os.getpid()), *self._program.call()]
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *call,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._program.environment()),
                start_new_session=True,
            )
        except OSError as error:
            told = f"{self._program.name} cannot be started: {error.strerror or error}"
            raise GatewayError(told) from error
        self.starts += 1
        if process.stderr is not None:
            self._hearing = asyncio.create_task(self._hear(process.stderr))
        await self._wait_for_service(process)

    async def _wait_for_service(self, process: asyncio.subprocess.Process) -> None:
        serving = asyncio.create_task(self._until_it_serves())
        ending = asyncio.create_task(process.wait())
        try:
            await asyncio.wait(
                [serving, ending], timeout=_START, return_when=asyncio.FIRST_COMPLETED
            )
            if serving.done():
                serving.result()
                return
            if ending.done():
                await self._heard_all()
                raise GatewayError(self._why(process.returncode))
            raise GatewayError(f"{self._program.name} does not serve after {_START:g} s")
        finally:
            for task in (serving, ending):
                task.cancel()
            await asyncio.wait([serving, ending])

    async def _until_it_serves(self) -> None:
        while not await self._program.serves():  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(0.02)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        name = self._program.name
        while True:
            began = loop.time()
            why = await self._until_it_ends()
            if not self._is_wanted:
                return
            await self._killed()  # its workers may still hold the ports
            pause = self._pauses.after(loop.time() - began)
            while True:
                told = f"{why}; it is started again in {pause:.2g} s"
                tell(told, level=logging.ERROR, event="ended", program=name)
                await asyncio.sleep(pause)
                try:
                    await self._run_until_it_serves()
                except GatewayError as error:
                    await self._killed()
                    why = str(error)
                    pause = self._pauses.after(0.0)
                else:
                    break
            tell(f"{name} serves again", event="again", program=name, pid=self.pid)

    async def _until_it_ends(self) -> str:
        """Wait for the end, or bring it about if it hangs; why it has ended."""
        process = self._process
        if process is None:
            return f"{self._program.name} does not run"
        loop = asyncio.get_running_loop()
        answered = loop.time()
        ending = asyncio.create_task(process.wait())
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=_PULSE)
                if ending.done() or await self._answers():
                    answered = loop.time()
                elif loop.time() - answered >= self._program.hung:
                    self._send_kill()
                    await ending
                    silent = f"has not answered for {self._program.hung:g} s, and was killed"
                    return f"{self._program.name} {silent}"
        finally:
            ending.cancel()
        await self._heard_all()
        return self._why(process.returncode)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._program.hung):
                return await self._program.answers()
        except TimeoutError:
            return False

    def _why(self, status: int | None) -> str:
        told = f"{self._program.name} has ended ({ending_of(status)})"
        words = self._program.last_words()
        return f"{told}: {words}" if words else told

    async def _heard_all(self) -> None:
        """Until all is heard that it has said; what it has started may hold its voice open."""
        if self._hearing is not None:
            await asyncio.wait([self._hearing], timeout=1.0)

    async def _hear(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stream.read(_MOST):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._program.hear(line.decode("utf-8", "backslashreplace"))
            rest = rest[:_MOST]
        if rest:
            self._program.hear(rest.decode("utf-8", "backslashreplace"))


def ending_of(status: int | None) -> str:
    """How a process has ended, in words."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
