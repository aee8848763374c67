"""A storage that can be broken and put right, and an engine that keeps what it is given."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.control.revision import Change, Revision, StorageError
from headgate.control.storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.policy.model import Policy


class ShakyStorage(MemoryStorage):
    """In memory, but it can be down: watches are lost then, and nothing is answered."""

    def __init__(self, first: Revision | None = None) -> None:
        super().__init__(first)
        self.is_down = False
        self.asked = 0
        self._dropped = asyncio.Event()

    def fail(self) -> None:
        self.is_down = True
        self._dropped.set()

    def recover(self) -> None:
        self.is_down = False
        self._dropped = asyncio.Event()

    def restore(self, revision: Revision) -> None:
        """Become what a backup had."""
        self._revisions = {revision.number: revision} if revision.number else {}
        self._newest = revision

    async def head(self) -> Revision:
        self.asked += 1
        self._check()
        return await super().head()

    async def watch(self, after: int) -> AsyncIterator[Revision]:
        self._check()
        own = super().watch(after)
        lost = asyncio.ensure_future(self._dropped.wait())
        try:
            while True:
                following = asyncio.ensure_future(anext(own))
                await asyncio.wait([lost, following], return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    await asyncio.wait([following])
                    raise StorageError("the watch is lost")
                yield following.result()
        finally:
            lost.cancel()

    def _check(self) -> None:
        if self.is_down:
            raise StorageError("nobody answers")


class Engine:
    """Takes policies as an engine does."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []

    def __call__(self, policy: Policy) -> int:
        self.policies.append(policy)
        return policy.revision

    @property
    def limits(self) -> list[str]:
        """The first limit of each policy, as text."""
        return [str(policy.rules[0].limits[None][0]) for policy in self.policies]

    @property
    def revisions(self) -> list[int]:
        return [policy.revision for policy in self.policies]


def made(number: int, limit: str = "5/s", **rule: Any) -> Revision:
    """A revision with one rule."""
    document = {"version": 1, "rules": [{"id": "a", "key_by": "ip", "limit": limit, **rule}]}
    return Revision(number, document, {"a": number}, Change("ada", number, f"make {number}"))


async def until(is_so: Callable[[], bool]) -> None:
    """Let the event loop go on until it *is_so*."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0)
