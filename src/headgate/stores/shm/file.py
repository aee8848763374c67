"""An open file of a store: what one process holds of it."""

from __future__ import annotations

import mmap
import os
import threading
from random import randrange
from typing import TYPE_CHECKING, Final

from headgate.stores.shm.cells import Hashes, Table
from headgate.stores.shm.place import open_file, path_of
from headgate.stores.shm.records import Records
from headgate.stores.shm.turn import Patience

if TYPE_CHECKING:
    from headgate.stores.shm.layout import Layout
    from headgate.stores.shm.url import ShmAddress

CLOSED: Final = -1


class File:
    """The file, who may use it now, and how to read what is in it.

    `lock` is for the threads of this process, `patience` for the other processes. The descriptor
    is `CLOSED` after `close`; it may only be used by who has the lock.
    """

    __slots__ = (
        "_identity",
        "fd",
        "hashes",
        "is_damage_told",
        "layout",
        "lock",
        "memory",
        "next_bucket",
        "origin",
        "own",
        "patience",
        "records",
        "shared",
        "sweep_due",
    )

    def __init__(self, fd: int, layout: Layout, *, origin: int, timeout_ns: int) -> None:
        self.fd = fd
        self._identity = _identity(fd)
        self.layout = layout
        self.memory = mmap.mmap(fd, layout.size)
        self.origin = origin
        self.lock = threading.Lock()
        self.patience = Patience(timeout_ns)
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
        fd, layout = open_file(path_of(address.name), address.size)
        origin = 0 if has_clock else layout.anchor_ns
        return cls(fd, layout, origin=origin, timeout_ns=address.timeout_ns)

    @property
    def is_in_place(self) -> bool:
        """Whether others would find the same file: nobody has removed or replaced it."""
        return os.fstat(self.fd).st_nlink > 0 and _identity(self.fd) == self._identity

    def close(self) -> None:
        """The caller has the lock, or is alone."""
        fd, self.fd = self.fd, CLOSED
        if fd != CLOSED:
            self.memory.close()
            os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
