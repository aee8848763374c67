"""Where the revisions of a policy are kept: one interface, for a file here and for etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from headgate.control.revision import Change, Revision


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
