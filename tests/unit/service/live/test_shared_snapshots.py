"""Memory that workers share: whatever happens to a writer, readers find something whole."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import pytest

from headgate.service.live import shared_snapshots as module
from headgate.service.live.shared_snapshots import (
    LARGEST,
    SharedSnapshotError,
    SharedSnapshots,
    new_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fileno() -> Iterator[int]:
    number = new_file()
    yield number
    os.close(number)


class KilledError(Exception):
    """The writer was killed here."""


class Killed(SharedSnapshots):
    """A writer that is killed before its write number *survived* is made."""

    def __init__(self, fileno: int, *, survived: int) -> None:
        super().__init__(fileno, count=2)
        self._survived = survived

    def _write(self, data: bytes, start: int) -> None:
        if self._survived == 0:
            super()._write(data[: len(data) // 2], start)
            raise KilledError
        self._survived -= 1
        super()._write(data, start)


def test_what_was_left_on_a_board_is_read_by_whoever_has_the_file(fileno: int) -> None:
    one, other = SharedSnapshots(fileno, count=3), SharedSnapshots(fileno, count=3)
    assert [other.read(board) for board in range(3)] == [None, None, None]
    one.write(0, b"zero")
    other.write(2, b"two")
    one.write(0, b"zero again")
    assert [other.read(board) for board in range(3)] == [b"zero again", None, b"two"]


@pytest.mark.parametrize("size", [0, 1, 4096, 1_000_000])
def test_it_grows_and_shrinks(fileno: int, size: int) -> None:
    shared_snapshots = SharedSnapshots(fileno, count=2)
    for data in (b"x" * 70_000, b"y" * size, b"z" * 3):
        shared_snapshots.write(1, data)
        assert shared_snapshots.read(1) == data
    assert shared_snapshots.read(0) is None


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_a_writer_that_is_killed_leaves_what_was_there_before(fileno: int, survived: int) -> None:
    shared_snapshots = SharedSnapshots(fileno, count=2)
    shared_snapshots.write(0, b"the first " * 50)
    shared_snapshots.write(0, b"the second " * 50)
    with pytest.raises(KilledError):
        Killed(fileno, survived=survived).write(0, b"the third " * 50)
    assert shared_snapshots.read(0) == b"the second " * 50
    shared_snapshots.write(0, b"of a successor")
    assert shared_snapshots.read(0) == b"of a successor"


def test_a_side_that_is_torn_is_noticed(fileno: int) -> None:
    shared_snapshots = SharedSnapshots(fileno, count=1)
    shared_snapshots.write(0, b"a" * 100)
    shared_snapshots.write(0, b"b" * 100)
    newer = next(
        start for start in (0, module.SIDE) if os.pread(fileno, 100, start + 20) == b"b" * 100
    )
    os.pwrite(fileno, b"!", newer + 20 + 50)
    assert shared_snapshots.read(0) == b"a" * 100


def test_nonsense_is_nothing(fileno: int) -> None:
    os.pwrite(fileno, b"\xff" * 64, 0)
    assert SharedSnapshots(fileno, count=1).read(0) is None


def test_what_is_too_large_is_refused_and_what_was_there_stays(fileno: int) -> None:
    shared_snapshots = SharedSnapshots(fileno, count=1)
    shared_snapshots.write(0, b"small")
    with pytest.raises(SharedSnapshotError, match="the maximum is"):
        shared_snapshots.write(0, bytes(LARGEST + 1))
    assert shared_snapshots.read(0) == b"small"


def test_a_file_that_cannot_be_written_is_told(fileno: int) -> None:
    SharedSnapshots(fileno, count=1).write(0, b"before")
    unwritable = os.open(f"/proc/self/fd/{fileno}", os.O_RDONLY)
    try:
        shared_snapshots = SharedSnapshots(unwritable, count=1)
        with pytest.raises(SharedSnapshotError, match="cannot be written: Bad file descriptor"):
            shared_snapshots.write(0, b"after")
        assert shared_snapshots.read(0) == b"before"
    finally:
        os.close(unwritable)


def test_a_file_that_is_gone_reads_as_nothing() -> None:
    gone = new_file()
    os.close(gone)
    assert SharedSnapshots(gone, count=1).read(0) is None


def test_without_memory_files_a_temporary_one_without_a_name_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    number = new_file()
    try:
        SharedSnapshots(number, count=1).write(0, b"something")
        assert SharedSnapshots(number, count=1).read(0) == b"something"
        assert os.listdir(str(tmp_path)) == []  # noqa: PTH208
    finally:
        os.close(number)


def test_readers_never_see_two_snapshots_mixed_nor_an_older_one(fileno: int) -> None:
    writing, reading = SharedSnapshots(fileno, count=1), SharedSnapshots(fileno, count=1)
    writing.write(0, b"0 " * 20_000)
    seen: list[int] = []
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            data = reading.read(0)
            if data is not None:
                assert len(set(data.split())) == 1
                seen.append(int(data.split()[0]))

    reader = threading.Thread(target=read)
    reader.start()
    while not seen:
        time.sleep(0.001)
    for number in range(1, 200):
        writing.write(0, b"%d " % number * (20_000 + number))
    is_done.set()
    reader.join()
    assert seen == sorted(seen)
