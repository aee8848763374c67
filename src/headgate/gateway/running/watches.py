"""How many files Envoy may still watch: it ends itself when it is one too many."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.gateway.running.errors import NotNowError

_MOST: Final = Path("/proc/sys/fs/inotify/max_user_instances")


def check_watches(wanted: int) -> None:
    """Raises `NotNowError` if this user may not watch *wanted* files more.

    For each of them Envoy takes one of the instances of inotify that Linux gives a user.
    """
    if _are_free(wanted):
        return
    most = ""
    with suppress(OSError):
        most = f"{_MOST.read_text('ascii').strip()} "
    raise NotNowError(
        f"Envoy would watch {wanted} files more, and this user has too few of its {most}instances "
        "of inotify left; raise fs.inotify.max_user_instances, or stop what takes them"
    )


def _are_free(wanted: int) -> bool:
    """Whether there are so many: they are taken, and given back."""
    if sys.platform != "linux":
        return True
    taken: list[int] = []
    begin = ctypes.CDLL(None).inotify_init1
    try:
        while len(taken) < wanted:
            descriptor = begin(os.O_CLOEXEC)
            if descriptor < 0:
                return False
            taken.append(descriptor)
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return True
