"""Messages between a supervisor and a worker, over a private pair of sockets.

supervisor -> worker    an `Assignment`, once
worker -> supervisor    a `Report` when it serves, or a `Failure` when it cannot

Each side detects the end of the other by the end of the channel. Settings go this way because other
users can read a process's arguments, and its children its environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from headgate.config.service import Settings


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
class Report:
    """The state of a worker that serves: *revision* and number of *rules*, if there is a policy."""

    revision: int | None
    rules: int
    domains: int
    not_ready: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a worker cannot start."""

    reason: str


class WorkerEnd:
    """The worker's end of the channel, from its file descriptor."""

    def __init__(self, fileno: int) -> None:
        self._connection = Connection(fileno)

    def fileno(self) -> int:
        return self._connection.fileno()

    def assignment(self) -> Assignment:
        """Wait for the assignment. Raises `EOFError` if the supervisor is gone."""
        return cast("Assignment", self._connection.recv())

    def send(self, message: Report | Failure) -> None:
        """Send *message* to the supervisor, if it is still there."""
        try:
            self._connection.send(message)
        except OSError:
            return


class SupervisorEnd:
    """The supervisor's end of the channel."""

    def __init__(self, fileno: int) -> None:
        self._connection = Connection(fileno)

    def fileno(self) -> int:
        return self._connection.fileno()

    def assign(self, assignment: Assignment) -> None:
        """Send the assignment; `receive` reports a worker that has died already."""
        try:
            self._connection.send(assignment)
        except OSError:
            return

    def receive(self) -> Report | Failure | None:
        """Wait for a message of the worker; None if it is gone."""
        try:
            return cast("Report | Failure", self._connection.recv())
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        self._connection.close()
