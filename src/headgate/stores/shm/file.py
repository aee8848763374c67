"""An open file of a store: what one process holds of it."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import re
import stat
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import randrange
from typing import Final

from headgate.errors import StoreError, StoreURLError
from headgate.server_urls import URLReader
from headgate.stores.shm.layout import COUNT_WORD, PAGE, VERSION, Hashes, Layout, Table
from headgate.stores.shm.lock import FileLock
from headgate.stores.shm.records import WORD, Records
from headgate.units import MILLISECOND, SECOND

# What a URL such as `shm://name?size=64MB` says.


SMALLEST_SIZE: Final = 1 << 20
LARGEST_SIZE: Final = 64 << 30
USUAL_SIZE: Final = 32 << 20
"""Half of what a container has in /dev/shm unless it is told otherwise."""
USUAL_TIMEOUT_NS: Final = 50 * MILLISECOND

_URL: Final = re.compile(r"shm://(.*)", re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME: Final = 64
_SIZE: Final = re.compile(r"([1-9][0-9]{0,11})(B|KB|MB|GB)?", re.IGNORECASE)
_SECONDS: Final = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_UNITS: Final = {"": 0, "B": 0, "KB": 10, "MB": 20, "GB": 30}
_OPTIONS: Final = ("size", "timeout")
_READER: Final = URLReader("shm", StoreURLError)


@dataclass(frozen=True, slots=True)
class ShmAddress:
    """Which store, and how it is to be kept."""

    name: str
    size: int | None = None
    """Bytes; None: as large as it is, or the usual size."""
    timeout_ns: int = USUAL_TIMEOUT_NS
    """How often a waiter looks at the holder of the lock."""


def read_url(url: str) -> ShmAddress:
    """What *url* says; `StoreURLError` if that makes no sense."""
    found = _URL.fullmatch(url)
    if found is None:
        raise StoreURLError("the URL of a store in shared memory looks like 'shm://name'")
    name, path, pairs = _READER.split(found[1])
    if path.strip("/") or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise _READER.wrong(
            f"the name is {(name + path)[:80]!r}; expected 1 to {_LONGEST_NAME} letters, digits, "
            "'-', '_' and single dots, beginning with a letter or digit, as in 'shm://my-app'"
        )
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _READER.wrong("an option is given twice")
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise _READER.wrong(f"unknown option {unknown[0]!r}; there are 'size' and 'timeout'")
    size, timeout = options.get("size"), options.get("timeout")
    return ShmAddress(
        name,
        None if size is None else _size(size),
        USUAL_TIMEOUT_NS if timeout is None else _timeout_ns(timeout),
    )


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    size = int(found[1]) << _UNITS[(found[2] or "").upper()] if found else 0
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise _READER.wrong(f"size is {text!r}; expected 1MB to 64GB, such as 'size=64MB'")
    return size


def _timeout_ns(text: str) -> int:
    nanoseconds = int(float(text) * SECOND) if _SECONDS.fullmatch(text) else 0
    if not MILLISECOND <= nanoseconds <= 10 * SECOND:
        raise _READER.wrong(f"timeout is {text!r}; expected seconds from 0.001 to 10")
    return nanoseconds


# Where the files of stores are, and how one is made: wholly or not at all.
#
#     /dev/shm/headgate-<user id>/<name>.v1
#
# A directory for each user, which nobody else may look into; the temporary directory where there is
# no /dev/shm. A new file gets its name when it is complete. All of its memory is taken at once, so
# that no later write can find that there is none left.


LOG: Final = logging.getLogger("headgate.store")
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (what is made there is made with care)
_TRIES: Final = 10
_UNFINISHED: Final = ".new-"
_LONG_AGO: Final = 60.0
"""Seconds; a file is made in a few milliseconds."""
_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def path_of(name: str) -> Path:
    """Where the store *name* of this user is, in a directory that is there and is safe."""
    parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    directory = parent / f"headgate-{os.geteuid()}"
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or found.st_mode & 0o077:
        raise StoreError(
            f"{directory} is not a directory that belongs to user {os.geteuid()} and to nobody "
            "else (mode 0700): remove it, or find out who made it",
            reason="denied",
        )
    return directory / f"{name}.v{VERSION}"


def open_file(path: Path, size: int | None) -> tuple[int, Layout]:
    """A descriptor of the store at *path*, made if there is none; made anew if it is damaged."""
    for _ in range(_TRIES):
        try:
            fd = os.open(path, _OPEN)
        except FileNotFoundError:
            _make(path, size or USUAL_SIZE, replacing=None)
            continue
        try:
            layout = layout_of(fd)
            if layout is not None:
                if size is not None and size != layout.size:
                    LOG.warning(
                        "shm://: the store is there already with size=%dB, which is used, not %dB; "
                        "remove %s for a new one",
                        layout.size,
                        size,
                        path,
                    )
                return fd, layout
            LOG.warning("%s is damaged, or left from before a restart: made anew", path)
            _make(path, size or USUAL_SIZE, replacing=fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise StoreError(f"{path} is being replaced again and again", reason="unavailable")


def layout_of(fd: int) -> Layout | None:
    """What the file says of itself; None if it is damaged."""
    layout = Layout.read(os.pread(fd, PAGE, 0))
    return layout if layout is not None and os.fstat(fd).st_size == layout.size else None


def _make(path: Path, size: int, *, replacing: int | None) -> None:
    """Put a new file at *path*: in place of the one open as *replacing*, or if there is none."""
    _clear_away(path.parent)
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
        elif is_at(path, replacing):
            Path(made).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(made).unlink()


def _clear_away(directory: Path) -> None:
    """Remove what was never finished, by somebody who was killed, long ago."""
    for found in directory.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if found.stat().st_mtime < time.time() - _LONG_AGO:
                found.unlink()


def is_at(path: Path, fd: int) -> bool:
    """Whether the file open as *fd* is still the one at *path*."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(fd))
    return False


def _allocate(fd: int, size: int) -> None:
    """Give the file all of its memory, or raise `OSError` before the host has none left."""
    free = os.fstatvfs(fd)
    if free.f_bavail * free.f_frsize < size:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {size} bytes")
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
        else:
            return
    zeros = bytes(1 << 20)
    for start in range(0, size, len(zeros)):
        os.pwrite(fd, zeros[: size - start], start)


CLOSED: Final = -1


class File:
    """The file, who may use it now, and how to read what is in it.

    `lock` is for the threads of this process, `flock` for the other processes. The descriptor
    is `CLOSED` after `close`; it may only be used by who has the lock. `words` is `memory` as
    numbers, each of which is written at once.
    """

    __slots__ = (
        "_path",
        "fd",
        "flock",
        "hashes",
        "is_damage_told",
        "layout",
        "lock",
        "memory",
        "next_bucket",
        "origin",
        "own",
        "records",
        "shared",
        "sweep_due",
        "words",
    )

    def __init__(
        self, path: Path, fd: int, layout: Layout, *, origin: int, timeout_ns: int
    ) -> None:
        self.fd = fd
        self._path = path
        self.layout = layout
        self.memory = mmap.mmap(fd, layout.size)
        self.words = memoryview(self.memory)[: layout.size // WORD * WORD].cast("Q")
        self.origin = origin
        self.lock = threading.Lock()
        self.flock = FileLock(fd, self.words, COUNT_WORD, timeout_ns)
        self.records = Records(origin)
        self.hashes = Hashes(layout.secret)
        self.own = Table.own(fd, layout)
        self.shared = Table.shared(fd, layout)
        self.next_bucket = randrange(len(self.own) + len(self.shared))  # noqa: S311
        self.is_damage_told = False
        self.sweep_due = 0
        """When to look for idle counters again, counted from *origin*."""

    @classmethod
    def open(cls, address: ShmAddress, *, has_clock: bool) -> File:
        """Open the store that *address* names; made if there is none."""
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
        """Whether others would find the same file: nobody has removed, moved or replaced it."""
        return is_at(self._path, self.fd)

    def close(self) -> None:
        """The caller has the lock, or is alone."""
        fd, self.fd = self.fd, CLOSED
        if fd != CLOSED:
            self.words.release()
            self.memory.close()
            with suppress(OSError):  # somebody has closed it who closes everything
                os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "sweep_due"):  # it was opened at all
            self.close()


# What the kernel refuses, as the error of a store.


_FULL: Final = {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG}
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP}


def store_error(error: OSError) -> StoreError:
    """*error* in the words of Headgate."""
    if error.errno in _FULL:
        return StoreError(f"no room for the shared memory: {error}", reason="out_of_memory")
    if error.errno in _DENIED:
        return StoreError(f"the shared memory cannot be opened: {error}", reason="denied")
    return StoreError(f"the shared memory cannot be used: {error}", reason="unavailable")
