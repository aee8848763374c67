"""Revisions in a policy file and a history beside it, for an event loop.

The file is the newest revision. People may go on editing it by hand; what they write becomes a
revision of the author `file`, and what is no policy changes nothing and is told. A change through
the storage rewrites the file, and comments are lost: the text before is in the history.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from headgate.control.policy_file import PolicyFile, UnreadableFileError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Sequence

    from headgate.control.revision import Change, Revision

MOST_REVISIONS: Final = 200
"""How many are kept beside the file."""
_INTERVAL: Final = 0.1


class FileStorage:
    """A `PolicyStorage` in the policy file *path* (YAML; JSON if its name ends so).

    Several processes of a machine may have it open. A file that *may_be_missing* is an empty policy
    until something is written; else its absence is an error. *read_only* keeps everything from
    being written, the history too: give it where nobody may change rules over the network. A
    directory of files is always read-only. *interval* is the time between looks in seconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        may_be_missing: bool = False,
        read_only: bool = False,
        most: int = MOST_REVISIONS,
        interval: float = _INTERVAL,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._file = PolicyFile(
            path, may_be_missing=may_be_missing, read_only=read_only, most=most, pause=pause
        )
        self._interval = interval

    @property
    def place(self) -> str:
        """The path."""
        return self._file.place

    async def head(self) -> Revision:
        """The newest revision. Raises `UnreadableFileError` while the file is no policy."""
        return await asyncio.to_thread(self._file.head)

    async def commit(self, revision: Revision) -> None:
        """Make *revision* the newest; the file is rewritten, without the comments in it.

        Raises `ConflictError`; `ReadOnlyError` also while the file, changed by hand, is no policy:
        what somebody is writing there is not overwritten.
        """
        await asyncio.to_thread(self._file.commit, revision)

    async def at(self, number: int) -> Revision:
        """The revision *number*. Raises `UnknownRevisionError`."""
        return await asyncio.to_thread(self._file.at, number)

    async def history(
        self, *, before: int | None = None, most: int = 50
    ) -> Sequence[tuple[int, Change]]:
        """Number and change of the newest below *before*."""
        return await asyncio.to_thread(self._file.changes, before=before, most=most)

    async def watch(self, after: int) -> AsyncIterator[Revision]:
        """The newest revision whenever it is another. A file that is no policy is looked at twice
        before that is told, by `UnreadableFileError`: it may be on its way."""
        is_doubted = False
        while True:
            try:
                newest = await self.head()
            except UnreadableFileError:
                if is_doubted:
                    raise
                is_doubted = True
            else:
                is_doubted = False
                if newest.number != after:
                    after = newest.number
                    yield newest
            await asyncio.sleep(self._interval)

    async def aclose(self) -> None:
        """Nothing is held open."""
