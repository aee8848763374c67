"""What a supervisor and a worker tell each other, over a pair of sockets that only they have.

supervisor -> worker    an `Assignment`, once
worker -> supervisor    a `Report` when it serves, or a `Failure` when it cannot

The end of the channel is the end of whoever held the other side. Settings go this way because
others can read a process's arguments, and its children its environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from headgate.config.service import Settings


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is to do: its *number*, and the file numbers of the sockets it serves on.

    *shared_snapshots* is that of the memory that workers share, None if there is none.
    """

    settings: Settings
    number: int
    http: tuple[int, ...]
    grpc: tuple[int, ...]
    shared_snapshots: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker serves by: the policy's *revision* and number of *rules*, if it has one yet."""

    revision: int | None
    rules: int
    domains: int
    not_ready: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a worker cannot start, in words."""

    reason: str


class WorkerEnd:
    """The worker's end of the channel, from the number of its file."""

    def __init__(self, fileno: int) -> None:
        self._connection = Connection(fileno)

    def fileno(self) -> int:
        return self._connection.fileno()

    def assignment(self) -> Assignment:
        """What to do. Raises `EOFError` if there is nobody to say."""
        return cast("Assignment", self._connection.recv())

    def tell(self, message: Report | Failure) -> None:
        """Tell the supervisor, if it is still there."""
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
        """Tell the worker what to do; one that has died already will be noticed by `hear`."""
        try:
            self._connection.send(assignment)
        except OSError:
            return

    def hear(self) -> Report | Failure | None:
        """What the worker says; None if it has gone. Waits until it says something."""
        try:
            return cast("Report | Failure", self._connection.recv())
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        self._connection.close()
