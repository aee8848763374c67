"""What a Redis server and a Sentinel have in common: a directory, a port, a process, a client."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.servers.asking import ask
from tests.support.servers.ports import HOST, free_port, release_port
from tests.support.servers.process import Driven, Process, ServerError, run
from tests.support.servers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXECUTABLE = os.environ.get("HEADGATE_REDIS_SERVER", "redis-server")

_open: dict[int, Instance] = {}
_owner = os.getpid()


def is_installed() -> bool:
    """Whether this machine has the programs that the servers need."""
    return all(map(shutil.which, (EXECUTABLE, "redis-cli", "openssl")))


class Instance(Driven, ABC):
    """One process of the Redis family on a loopback port of its own.

    Port and directory are there from the beginning, the process from `start` on. `stop` and `kill`
    end the process, and `restart` brings it back on the same port with the configuration that it
    had; `close`, which is also the end of a `with`, gives everything back.
    """

    def __init__(self, *, executable: str = EXECUTABLE) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="headgate-"))
        self._call = [executable, str(self.directory / "redis.conf")]
        self._process: Process | None = None
        _open[id(self)] = self

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    @abstractmethod
    def _configuration(self) -> Sequence[str]:
        """The lines of its configuration file."""

    def _cli_options(self) -> Sequence[str]:
        return ("-h", HOST, "-p", str(self.port))

    def _cli_environment(self) -> Mapping[str, str]:
        return {}

    @property
    def address(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there, be it paused."""
        return self._process is not None and self._process.is_running

    @property
    def is_answering(self) -> bool:
        """Whether the process is there and not paused."""
        return self.is_running and not self._running().is_paused

    @property
    def log(self) -> str:
        """What the process has printed so far."""
        path = self.directory / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start the process and wait until it answers; `ServerError` with its log if it does not.

        The configuration is written at the first start only: Sentinel rewrites it later.
        """
        if self.is_running:
            raise ServerError(f"{self} runs already")
        path = Path(self._call[1])
        if not path.exists():
            path.write_text("\n".join([*self._configuration(), ""]))
        self._process = Process(self._call, self.directory / "output.log")
        try:
            wait_until(self._has_begun, f"{self} answers")
        except ServerError as exc:
            raise ServerError(f"{exc}; it printed:\n{self.log[-4000:]}") from exc
        if not self.is_running:
            raise ServerError(f"{self} ended at once; it printed:\n{self.log[-4000:]}")

    def _has_begun(self) -> bool:
        return not self.is_running or self.cli("ping", within=2.0) == "PONG"

    def cli(self, *arguments: str, typed: str | None = None, within: float = 5.0) -> str:
        """The answer to a command, as `redis-cli` prints it: a list has one line per item.

        *typed* are commands too, a line each. `ServerError` if the answer is an error, and if there
        is none *within* so many seconds.
        """
        commands = [arguments] if arguments else []
        commands += [tuple(line.split()) for line in (typed or "").splitlines()]
        if self._knows_asking() and not any(word.startswith("-") for word in arguments[:1]):
            return self._ask(commands, within)
        call = (*self._cli_options(), "-e", *arguments)
        return run("redis-cli", *call, env=self._cli_environment(), typed=typed, within=within)

    def _knows_asking(self) -> bool:
        """Whether it takes commands in the clear. `redis-cli` does the rest: options, TLS."""
        return True

    def _ask(self, commands: Sequence[Sequence[str]], within: float) -> str:
        login = self._login()
        said = ask((HOST, self.port), [*login, *commands], within=within)
        return said.split("\n", 1)[-1] if login else said

    def _login(self) -> Sequence[Sequence[str]]:
        """The command that `cli` begins with."""
        return ()

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of INFO."""
        lines = self.cli("info", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def restart(self) -> None:
        """Stop the process, if it runs, and start it again on the same port. Its data are lost."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the process, and give back its port and its directory."""
        self.kill()
        if _open.pop(id(self), None) is not None:
            release_port(self.port)
            shutil.rmtree(self.directory, ignore_errors=True)


@atexit.register
def _close_all() -> None:
    if os.getpid() == _owner:  # a forked child has no say in what its parent started
        for instance in list(_open.values()):
            instance.close()
