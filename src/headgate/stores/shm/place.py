"""Where the files of stores are, and how one is made: wholly or not at all.

    /dev/shm/headgate-<user id>/<name>.v1

A directory for each user, which nobody else may look into; the temporary directory where there is
no /dev/shm. A new file gets its name when it is complete. All of its memory is taken at once, so
that no later write can find that there is none left.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.errors import StoreError
from headgate.stores.shm.layout import PAGE, VERSION, Layout
from headgate.stores.shm.url import USUAL_SIZE

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
