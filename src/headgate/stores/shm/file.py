"""An open file of a store: what one process holds of it."""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from random import randrange
from typing import TYPE_CHECKING, Final

from headgate.stores.shm.cells import Hashes, Table
from headgate.stores.shm.place import is_at, open_file, path_of
from headgate.stores.shm.records import WORD, Records
from headgate.stores.shm.turn import Patience

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.stores.shm.layout import Layout
    from headgate.stores.shm.url import ShmAddress

CLOSED: Final = -1


class File:
    """The file, who may use it now, and how to read what is in it.

    `lock` is for the threads of this process, `patience` for the other processes. The descriptor
    is `CLOSED` after `close`; it may only be used by who has the lock. `words` is `memory` as
    numbers, each of which is written at once.
    """

    __slots__ = (
        "_path",
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
        "words",
    )

    def __init__(
        self, path: Path, fd: int, layout: Layout, *, origin: int, timeout_ns: int, most_ns: int
    ) -> None:
        self.fd = fd
        self._path = path
        self.layout = layout
        self.memory = mmap.mmap(fd, layout.size)
        self.words = memoryview(self.memory)[: layout.size // WORD * WORD].cast("Q")
        self.origin = origin
        self.lock = threading.Lock()
        self.patience = Patience(self.words, timeout_ns=timeout_ns, most_ns=most_ns)
        self.records = Records(origin)
        self.hashes = Hashes(layout.secret)
        self.own = Table.own(fd, layout)
        self.shared = Table.shared(fd, layout)
        self.next_bucket = randrange(len(self.own) + len(self.shared))  # noqa: S311
        self.is_damage_told = False
        self.sweep_due = 0
        """When to look for idle counters again, counted from *origin*."""

    @classmethod
    def open(cls, address: ShmAddress, *, has_clock: bool, most_ns: int) -> File:
        """Open the store that *address* names; made if there is none.

        Nobody waits longer than *most_ns* for a turn.
        """
        path = path_of(address.name)
        fd, layout = open_file(path, address.size)
        origin = 0 if has_clock else layout.anchor_ns
        wait_ns = address.timeout_ns
        try:
            return cls(path, fd, layout, origin=origin, timeout_ns=wait_ns, most_ns=most_ns)
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
