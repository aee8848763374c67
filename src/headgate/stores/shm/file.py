"""The file of a store: its URL, where it lies, how it is made, and what a process holds of it.

    /dev/shm/headgate-<user id>/<name>.v<version>

Each user has a directory that no other user can enter, below the temporary directory where there is
no /dev/shm. A new file gets its name once it is complete, with all of its memory allocated, so that
no later write runs out of memory.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import re
import stat
import struct
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from headgate.chance import below
from headgate.errors import StoreError, StoreURLError
from headgate.server_urls import URLReader
from headgate.stores.shm.lock import FileLock
from headgate.stores.shm.records import Records
from headgate.stores.shm.table import (
    CELLS_AT,
    COUNT_WORD,
    PAGE,
    VERSION,
    WORD,
    Layout,
    Names,
    Table,
)
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

MIN_SIZE: Final = 1 << 20
MAX_SIZE: Final = 64 << 30
DEFAULT_SIZE: Final = 32 << 20
"""Half of the default /dev/shm of a container."""
DEFAULT_TIMEOUT_NS: Final = 50 * MILLISECOND

_URL: Final = re.compile(r"shm://(.*)", re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
_MAX_NAME: Final = 64
_SIZE: Final = re.compile(r"([1-9][0-9]{0,11})(B|KB|MB|GB)?", re.IGNORECASE)
_SECONDS: Final = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_UNITS: Final = {"": 0, "B": 0, "KB": 10, "MB": 20, "GB": 30}
_READER: Final = URLReader("shm", StoreURLError)


@dataclass(frozen=True, slots=True)
class ShmAddress:
    """The parts of a URL such as `shm://name?size=64MB`."""

    name: str
    size: int | None = None
    """Bytes; None: the size of the file that exists, or the default."""
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    """Nanoseconds to wait before looking at the holder of the lock."""


def read_url(url: str) -> ShmAddress:
    """Parse *url*, or raise `StoreURLError`."""
    found = _URL.fullmatch(url)
    if found is None:
        raise StoreURLError("the URL of a store in shared memory looks like 'shm://name'")
    name, path, pairs = _READER.split(found[1])
    if path.strip("/") or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise _READER.wrong(
            f"the name is {(name + path)[:80]!r}; expected 1 to {_MAX_NAME} letters, digits, "
            "'-', '_' and single dots, beginning with a letter or digit, as in 'shm://my-app'"
        )
    options = _READER.options(
        pairs,
        {
            "size": (_size, "1MB to 64GB, such as 'size=64MB'"),
            "timeout": (_timeout_ns, "seconds from 0.001 to 10"),
        },
    )
    return ShmAddress(name, options.get("size"), options.get("timeout", DEFAULT_TIMEOUT_NS))


def _size(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    size = int(found[1]) << _UNITS[(found[2] or "").upper()] if found else 0
    return size if MIN_SIZE <= size <= MAX_SIZE else None


def _timeout_ns(text: str) -> int | None:
    nanoseconds = int(float(text) * SECOND) if _SECONDS.fullmatch(text) else 0
    return nanoseconds if MILLISECOND <= nanoseconds <= 10 * SECOND else None


LOG: Final = logging.getLogger("headgate.store")
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (files are only made in a private directory)
_TRIES: Final = 10
_UNFINISHED: Final = ".new-"
_STALE: Final = 60.0
"""Seconds after which an unfinished file is removed; making one takes milliseconds."""
_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def path_of(name: str) -> Path:
    """Return the path of the store *name* of this user, in a directory that exists and is safe."""
    parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    directory = parent / f"headgate-{os.geteuid()}"
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or found.st_mode & 0o077:
        raise StoreError(
            f"{directory} is not a directory of user {os.geteuid()} with mode 0700: remove it, or "
            "find out who made it",
            reason="denied",
        )
    return directory / f"{name}.v{VERSION}"


def open_file(path: Path, size: int | None) -> tuple[int, Layout]:
    """Open the file at *path*; make it if there is none, replace it if it is damaged."""
    for _ in range(_TRIES):
        try:
            fd = os.open(path, _OPEN)
        except FileNotFoundError:
            _make(path, size or DEFAULT_SIZE, replacing=None)
            continue
        try:
            layout = layout_of(fd)
            if layout is not None:
                if size is not None and size != layout.size:
                    LOG.warning(
                        "shm://: the store exists with size=%dB, which is used instead of %dB; "
                        "remove %s to make a new one",
                        layout.size,
                        size,
                        path,
                    )
                return fd, layout
            LOG.warning("%s is damaged or from before a restart: replaced by a new file", path)
            _make(path, size or DEFAULT_SIZE, replacing=fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise StoreError(f"{path} is being replaced again and again", reason="unavailable")


def layout_of(fd: int) -> Layout | None:
    """Return the layout of the file *fd*; None if it is damaged."""
    layout = Layout.read(os.pread(fd, PAGE, 0))
    return layout if layout is not None and os.fstat(fd).st_size == layout.size else None


def _make(path: Path, size: int, *, replacing: int | None) -> None:
    """Put a new file at *path*: in place of the one open as *replacing*, or if there is none."""
    _remove_unfinished(path.parent)
    fd, made = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
    try:
        try:
            _allocate(fd, size)
            os.pwrite(fd, Layout.for_size(size).page(), 0)
        finally:
            os.close(fd)
        if replacing is None:
            with suppress(FileExistsError):
                os.link(made, path)
        elif _is_at(path, replacing):
            Path(made).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(made).unlink()


def _remove_unfinished(directory: Path) -> None:
    """Remove files of processes that were killed while they made them."""
    for found in directory.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if found.stat().st_mtime < time.time() - _STALE:
                found.unlink()


def _is_at(path: Path, fd: int) -> bool:
    """True if the file open as *fd* is the one at *path*."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(fd))
    return False


def _allocate(fd: int, size: int) -> None:
    """Allocate all memory of the file, or raise `OSError` before the host runs out of it."""
    free = os.fstatvfs(fd)
    if free.f_bavail * free.f_frsize < size:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {size} bytes")
    zeros = bytes(1 << 20)
    for start in range(0, size, len(zeros)):
        os.pwrite(fd, zeros[: size - start], start)


CLOSED: Final = -1


class File:
    """An open file of a store.

    Hold `threads`, then `processes`, to use anything else in it. `fd` is `CLOSED` after `close`.
    `words` is `memory` as numbers, each of which is written at once.
    """

    def __init__(
        self, path: Path, fd: int, layout: Layout, *, origin: int, timeout_ns: int
    ) -> None:
        self.fd = fd
        self._path = path
        self.layout = layout
        self.memory = mmap.mmap(fd, layout.size)
        self.words = memoryview(self.memory)[: layout.size // WORD * WORD].cast("Q")
        self.origin = origin
        self.threads = threading.Lock()
        self.processes = FileLock(fd, self.words, COUNT_WORD, timeout_ns)
        self.records = Records(origin)
        self.names = Names(layout.secret)
        self.own = Table(self.memory, CELLS_AT, layout.buckets)
        self.overflow = Table(self.memory, layout.overflow_at, layout.overflow_buckets)
        self.cells: dict[tuple[str, str], tuple[int, bytes]] = {}
        """Cell and name of counters that were used lately, by group and key."""
        self.next_bucket = below(len(self.own) + len(self.overflow))
        self.has_warned = False
        self.sweep_due = 0
        """When to look for idle counters again, counted from *origin*."""

    @classmethod
    def open(cls, address: ShmAddress, *, has_clock: bool) -> File:
        """Open the file of *address*; make it if there is none."""
        path = path_of(address.name)
        fd, layout = open_file(path, address.size)
        origin = 0 if has_clock else layout.anchor_ns
        try:
            return cls(path, fd, layout, origin=origin, timeout_ns=address.timeout_ns)
        except OSError:
            os.close(fd)
            raise

    @property
    def is_in_place(self) -> bool:
        """True if other processes would open the same file: it was not removed or replaced."""
        return _is_at(self._path, self.fd)

    def close(self) -> None:
        """Close the file. The caller holds `threads`, or is alone."""
        fd, self.fd = self.fd, CLOSED
        if fd != CLOSED:
            self.words.release()
            self.memory.close()
            with suppress(OSError):  # the application may have closed all descriptors
                os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "words"):  # there is something to close
            self.close()


_FULL: Final = {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG}
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP}


def store_error(error: OSError) -> StoreError:
    """Translate an error of the kernel."""
    if error.errno in _FULL:
        return StoreError(f"no room for the shared memory: {error}", reason="out_of_memory")
    if error.errno in _DENIED:
        return StoreError(f"the shared memory cannot be opened: {error}", reason="denied")
    return StoreError(f"the shared memory cannot be used: {error}", reason="unavailable")


_LOOK_NS: Final = SECOND
"""The interval at which a process checks that the file is still in its place."""


class Files:
    """The file of a store in this process: opened when needed, and again if it was replaced."""

    errors = (OSError, EOFError, struct.error)
    """The errors of a file that is closed, replaced or damaged."""

    def __init__(self, address: ShmAddress, *, has_clock: bool) -> None:
        self.address = address
        self.current: File | None = None
        self.look_due = 0
        """When to check that it is still in its place, on the monotonic clock."""
        self._has_clock = has_clock
        self._offset = time.time_ns() - time.monotonic_ns()
        self._opening = threading.Lock()
        self._is_closed = False

    def time(self) -> int:
        """Return the time on the clock that all processes share."""
        return time.monotonic_ns() + self._offset

    def locked(self, work: Callable[[File, *Ts], R], *args: *Ts) -> R:
        """Return the result of *work* on the open file, with its locks held."""
        try:
            file = self._opened()
            with file.threads:
                if file.fd == CLOSED:
                    raise StoreError("the store was closed meanwhile", reason="closed")
                try:
                    file.processes.acquire()
                    return work(file, *args)
                finally:
                    file.processes.release()
        except self.errors as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> StoreError:
        """Drop the file, which has raised one of `errors`; return what to raise."""
        self._drop()
        if isinstance(error, OSError):
            return store_error(error)
        message = f"the shared memory {self.address.name!r} was replaced or is damaged"
        return StoreError(message, reason="unavailable")

    def close(self) -> None:
        """Close the file for good."""
        self._is_closed = True
        self._drop()

    def after_fork(self) -> None:
        """Drop the locks and the file of the parent process."""
        self._opening = threading.Lock()
        file, self.current = self.current, None
        if file is not None:
            file.threads = threading.Lock()  # a thread of the parent may have held it
            file.close()

    def _opened(self) -> File:
        file = self.current
        if file is not None and time.monotonic_ns() < self.look_due:
            return file
        with self._opening:
            if self._is_closed:
                raise StoreError("the store is closed", reason="closed")
            file = self.current
            if file is not None and not file.is_in_place:
                self.current = None
                with file.threads:
                    file.close()
                file = None
            if file is None:
                file = self.current = File.open(self.address, has_clock=self._has_clock)
                self._offset = file.layout.anchor_ns
            self.look_due = time.monotonic_ns() + _LOOK_NS
            return file

    def _drop(self) -> None:
        with self._opening:
            file, self.current = self.current, None
        if file is not None:
            with file.threads:
                file.close()
