"""The sources that need no server keep the contract."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.control.file_source import FileSource
from headgate.control.source import MemorySource
from tests.support.policy_source_contract import PolicySourceContract, SharedPolicySourceContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class TestMemorySource(PolicySourceContract):
    @contextmanager
    def opened(self, place: Path) -> Iterator[MemorySource]:
        yield MemorySource()


class TestFileSource(SharedPolicySourceContract):
    @contextmanager
    def opened(self, place: Path) -> Iterator[FileSource]:
        yield FileSource(place, may_be_missing=True)


class TestFileSourceInJson(SharedPolicySourceContract):
    @contextmanager
    def opened(self, place: Path) -> Iterator[FileSource]:
        yield FileSource(place.with_suffix(".json"), may_be_missing=True)
