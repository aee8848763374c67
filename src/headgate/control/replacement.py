"""Putting a file in the place of another so that, whatever happens, there is the old or the new.

The new content goes into a file beside it, which is brought to the disk before it takes the name.
What a kill leaves behind is the file beside it, which the next one to write clears away.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from glob import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PRIVATE: Final = 0o600
_SUFFIX: Final = ".new"


def replace_file(
    path: Path,
    content: bytes,
    *,
    is_like_old: bool = False,
    check: Callable[[], None] | None = None,
) -> None:
    """Make *content* that of *path*. Raises `OSError`.

    It is for its owner only, who is this user; if it *is_like_old*, with the permissions of the
    file that it replaces, and with its owner and group as far as this user may give it away.
    *check* is called just before the old file is gone, and may raise to keep it.
    An error before the last step leaves the old file; one in the last, which brings the directory
    to the disk, leaves the new one.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}")
    try:
        _write(beside, content, _found(path) if is_like_old else None)
        if check is not None:
            check()
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def clear_leftovers(path: Path, *, age: float = 0.0) -> None:
    """Remove what was left behind of earlier attempts at *path*, *age* seconds ago at least.

    Nobody else may be at it who takes longer than that.
    """
    with suppress(OSError):
        for beside in list(path.parent.glob(f".{escape(path.name)}.*{_SUFFIX}")):
            if time.time() - beside.stat().st_mtime >= age:
                beside.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Bring the names in *directory* to the disk."""
    if os.name == "nt":  # pragma: no cover - directories cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes, like: os.stat_result | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if like is not None:
            if hasattr(os, "fchown"):  # pragma: no branch - there is none on Windows
                with suppress(OSError):  # only root gives files away
                    os.fchown(descriptor, like.st_uid, like.st_gid)
            path.chmod(stat.S_IMODE(like.st_mode))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
