"""What is to be made anew in a process that was forked: connections and locks, above all."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "watch_forks"]


class Forkable(Protocol):
    """What has to be told."""

    def after_fork(self) -> None:
        """This is another process now; only the thread that forked is in it."""


_known: WeakSet[Forkable] = WeakSet()


def watch_forks(one: Forkable) -> None:
    """Have *one* begin anew in each process that is forked off this one."""
    _known.add(one)


def _after_fork() -> None:
    for one in list(_known):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
