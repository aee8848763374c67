"""The storages that need no server keep the contract."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headgate.control.file_source import FileStorage
from headgate.control.storage import MemoryStorage
from tests.support.policy_storage_contract import PolicyStorageContract, SharedPolicyStorageContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class TestMemoryStorage(PolicyStorageContract):
    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[MemoryStorage]:
        yield MemoryStorage()


class TestFileStorage(SharedPolicyStorageContract):
    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[FileStorage]:
        yield FileStorage(place, may_be_missing=True)


class TestFileStorageInJson(SharedPolicyStorageContract):
    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[FileStorage]:
        yield FileStorage(place.with_suffix(".json"), may_be_missing=True)
