"""Where the revisions of a policy are kept: one interface, for a file here and for etcd."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from headgate.control.revision import ConflictError, Revision, UnknownRevisionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from headgate.control.revision import Change


class PolicyStorage(Protocol):
    """Keeps the newest revision of a policy and those before it, for one event loop.

    Whatever cannot be asked raises `StorageError`; each call has a deadline of its own and ends.
    """

    @property
    def place(self) -> str:
        """Where it is, for messages; without passwords."""

    async def head(self) -> Revision:
        """The newest revision; number 0 with an empty document if there is none."""

    async def commit(self, revision: Revision) -> None:
        """Make *revision* the newest, if the newest is the one just before it by number.

        Raises `ConflictError` if it is not, `ReadOnlyError` if nothing can be written here. Then,
        and only then, it is certain that nothing was changed.
        """

    async def at(self, number: int) -> Revision:
        """The revision *number*. Raises `UnknownRevisionError`."""

    async def history(
        self, *, before: int | None = None, most: int = 50
    ) -> Sequence[tuple[int, Change]]:
        """Number and change of at most *most* revisions below *before*, the newest first."""

    def watch(self, after: int) -> AsyncIterator[Revision]:
        """The newest revision whenever it is another than number *after*, or than the one given
        last; those in between may be left out. Never ends by itself: it raises `StorageError` when
        the watch is lost, and may be begun again with what was given last."""

    async def aclose(self) -> None:
        """Give back what is held open."""


# Revisions in this process: for demonstrations and tests, and gone with it.


MOST_REVISIONS: Final = 200
"""How many are kept."""


class MemoryStorage:
    """A `PolicyStorage` in memory, for one event loop. *first* is there from the start."""

    place: Final = "memory"

    def __init__(self, first: Revision | None = None, *, most: int = MOST_REVISIONS) -> None:
        self._revisions = {} if first is None else {first.number: first}
        self._newest = Revision(0) if first is None else first
        self._most = most
        self._changed = asyncio.Event()

    async def head(self) -> Revision:
        """The newest revision; number 0 if there is none."""
        return self._newest

    async def commit(self, revision: Revision) -> None:
        """Make *revision* the newest. Raises `ConflictError` if another came first."""
        if revision.number != self._newest.number + 1:
            raise ConflictError(f"the policy is at revision {self._newest.number} meanwhile")
        self._revisions[revision.number] = self._newest = revision
        while len(self._revisions) > self._most:
            del self._revisions[min(self._revisions)]
        self._changed.set()
        self._changed = asyncio.Event()

    async def at(self, number: int) -> Revision:
        """The revision *number*. Raises `UnknownRevisionError`."""
        try:
            return self._revisions[number]
        except KeyError:
            raise UnknownRevisionError(f"there is no revision {number}") from None

    async def history(
        self, *, before: int | None = None, most: int = 50
    ) -> Sequence[tuple[int, Change]]:
        """Number and change of the newest below *before*."""
        numbers = sorted(self._revisions, reverse=True)
        wanted = [number for number in numbers if before is None or number < before][:most]
        return [(number, self._revisions[number].change) for number in wanted]

    async def watch(self, after: int) -> AsyncIterator[Revision]:
        """The newest revision whenever it is another than the one given last."""
        while True:
            changed = self._changed
            if self._newest.number != after:
                after = self._newest.number
                yield self._newest
            else:
                await changed.wait()

    async def aclose(self) -> None:
        """Nothing is held open."""
