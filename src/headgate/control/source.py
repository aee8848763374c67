"""`PolicySource`, the port to the place where a policy is kept, and the source in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from headgate.control.revision import ConflictError, Revision, UnknownRevisionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.control.revision import Change


class PolicySource(Protocol):
    """Keeps the newest revision of a policy and those before it. Safe among threads; blocking.

    Every call ends within a deadline of its own and raises `SourceError` if the source cannot be
    reached.
    """

    @property
    def place(self) -> str:
        """The location, for messages; without passwords."""

    def head(self) -> Revision:
        """Return the newest revision; number 0 with an empty document if there is none."""

    def wait(self, known: Revision, timeout: float) -> None:
        """Block until the newest revision may be another than *known*, at most *timeout* seconds.

        Returns early after `wake`. Raises `SourceError` if the source cannot be watched. One thread
        waits at a time.
        """

    def wake(self) -> None:
        """End the pending `wait`, or the next one. Never blocks; safe in a signal handler."""

    def commit(self, revision: Revision) -> None:
        """Make *revision* the newest, if the newest is the one just before it by number.

        Raises `ConflictError` if it is not, `ReadOnlyError` if the source cannot be written. Only
        then it is certain that nothing was changed.
        """

    def at(self, number: int) -> Revision:
        """Return the revision *number*. Raises `UnknownRevisionError`."""

    def history(self, *, before: int | None = None, most: int = 50) -> Sequence[tuple[int, Change]]:
        """Return number and change of at most *most* revisions below *before*, newest first."""

    def close(self) -> None:
        """Close connections; pending calls end with `SourceError`."""


MOST_REVISIONS: Final = 200
"""The number of revisions that are kept."""


class MemorySource:
    """A `PolicySource` in this process, for demonstrations and tests. *first* is its first head."""

    place: Final = "memory"

    def __init__(self, first: Revision | None = None, *, most: int = MOST_REVISIONS) -> None:
        self._revisions = {} if first is None else {first.number: first}
        self._newest = Revision(0) if first is None else first
        self._most = most
        self._changed = threading.Condition(threading.RLock())
        self._is_woken = False

    def head(self) -> Revision:
        """Return the newest revision; number 0 if there is none."""
        return self._newest

    def wait(self, known: Revision, timeout: float) -> None:
        """Block until the newest revision is another than *known*."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_woken or self._newest != known, timeout)
            self._is_woken = False

    def wake(self) -> None:
        """End a `wait`."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def commit(self, revision: Revision) -> None:
        """Make *revision* the newest. Raises `ConflictError` if another came first."""
        with self._changed:
            if revision.number != self._newest.number + 1:
                raise ConflictError(f"the policy is at revision {self._newest.number}")
            self._revisions[revision.number] = self._newest = revision
            while len(self._revisions) > self._most:
                del self._revisions[min(self._revisions)]
            self._changed.notify_all()

    def at(self, number: int) -> Revision:
        """Return the revision *number*. Raises `UnknownRevisionError`."""
        try:
            return self._revisions[number]
        except KeyError:
            raise UnknownRevisionError(f"there is no revision {number}") from None

    def history(self, *, before: int | None = None, most: int = 50) -> Sequence[tuple[int, Change]]:
        """Return number and change of the newest revisions below *before*."""
        with self._changed:
            numbers = sorted(self._revisions, reverse=True)
            older = [number for number in numbers if before is None or number < before]
            return [(number, self._revisions[number].change) for number in older[:most]]

    def close(self) -> None:
        """Nothing is held open."""
