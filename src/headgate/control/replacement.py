"""Putting a file in the place of another so that, whatever happens, there is the old or the new.

The new content goes into a file beside it, which is brought to the disk before it takes the name.
What a kill leaves behind is the file beside it, which the next one to write clears away.
"""

from __future__ import annotations

import os
from contextlib import suppress
from glob import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_PRIVATE: Final = 0o600
_SUFFIX: Final = ".new"


def replace_file(path: Path, content: bytes, *, mode: int = _PRIVATE) -> None:
    """Make *content* that of *path*, with the permissions *mode*. Raises `OSError`.

    An error before the last step leaves the old file; one in the last, which brings the directory
    to the disk, leaves the new one.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}")
    try:
        _write(beside, content, mode)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def clear_leftovers(path: Path) -> None:
    """Remove what was left behind of earlier attempts at *path*. Nobody else may be at it."""
    with suppress(OSError):
        for beside in list(path.parent.glob(f".{escape(path.name)}.*{_SUFFIX}")):
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


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        path.chmod(mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
