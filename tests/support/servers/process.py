"""A process that never outlives the one that started it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ServerError(Exception):
    """A server did not start, did not answer, or did not come to the state it was waited for."""


def find(program: str) -> str:
    """The path of *program*; `ServerError` if it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise ServerError(f"{program} is not installed: run scripts/install-servers")
    return path


def run(
    program: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    typed: str | None = None,
    within: float = 10.0,
) -> str:
    """What *program* prints; *typed* is its standard input.

    `ServerError` with what it printed if it fails or takes longer than *within* seconds.
    """
    call = [find(program), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are the tests' own
            call,
            env={**os.environ, **(env or {})},
            input=typed or "",
            text=True,
            capture_output=True,
            timeout=within,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise ServerError(f"{' '.join(call)}: no answer within {within} s") from exc
    if done.returncode:
        raise ServerError(f"{' '.join(call)}: {done.stdout}{done.stderr}".strip())
    return done.stdout.rstrip("\n")


class Process:
    """A running program whose output goes to the end of the file *log*.

    The kernel kills it when the thread that started it ends, however that happens: start a process
    in the main thread, or in one that lives as long as the process shall.
    """

    def __init__(self, call: Sequence[str], log: Path) -> None:
        leash = shutil.which("setpriv")  # of util-linux; execs the program: the pid is its own
        program = [find(call[0]), *call[1:]]
        with log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 - the arguments are the tests' own
                [leash, "--pdeathsig", "KILL", *program] if leash else program,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the terminal's Ctrl-C is for the tests only
            )
        self._paused = False

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a paused one runs."""
        return self._popen.poll() is None

    @property
    def is_paused(self) -> bool:
        """Whether it runs, but stands still."""
        return self._paused and self.is_running

    def kill(self) -> None:
        """End it and what it started at once (SIGKILL); return when it is gone."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def terminate(self, *, within: float = 5.0) -> None:
        """Ask it to end (SIGTERM), and kill it if it does not; return when it is gone."""
        if self.is_running and not self._paused:
            self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(within)
        self.kill()

    def pause(self) -> None:
        """Make it stand still (SIGSTOP); return when it does."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False


class Driven:
    """What can be done to a server that is one process: `_process`, if it was started."""

    _process: Process | None

    def kill(self) -> None:
        """End the process at once, as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """End the process in an orderly way (SIGTERM)."""
        if self._process is not None:
            self._process.terminate()

    def pause(self) -> None:
        """Hang: accept connections and requests, answer none (SIGSTOP)."""
        self._running().pause()

    def resume(self) -> None:
        """Go on after `pause`, and answer what was asked meanwhile (SIGCONT)."""
        self._running().resume()

    def _running(self) -> Process:
        if self._process is None or not self._process.is_running:
            raise ServerError(f"{self} does not run")
        return self._process
