"""A node that watches a policy in etcd and writes down what it is given."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.control.revision import Revision, StorageError
from tests.support.policy_storage_contract import soon

if TYPE_CHECKING:
    from headgate.control.etcd import EtcdStorage


class Watcher:
    """What a watch gives, collected; begun again after `StorageError`, as a node would."""

    def __init__(self, storage: EtcdStorage, after: int = 0) -> None:
        self.given: list[Revision] = []
        self.losses: list[StorageError] = []
        self._storage, self._after = storage, after
        self._news = asyncio.Condition()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            try:
                async for one in self._storage.watch(self._after):
                    self.given.append(one)
                    self._after = one.number
                    await self._tell()
            except StorageError as error:
                self.losses.append(error)
                await self._tell()
                await asyncio.sleep(0.05)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def until(self, condition: Any) -> None:
        async def wait() -> None:
            async with self._news:
                await self._news.wait_for(lambda: condition(self))

        await soon(wait())

    async def reaches(self, number: int) -> None:
        """Wait until the newest that was given is *number*."""
        await self.until(lambda self: self.given and self.given[-1].number == number)

    async def __aenter__(self) -> Watcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def committed(storage: EtcdStorage, wanted: Revision) -> None:
    """Commit *wanted*, and wait for the server if need be."""
    async with asyncio.timeout(10):
        while True:
            try:
                await storage.commit(wanted)
            except StorageError:
                await asyncio.sleep(0.05)
            else:
                return
