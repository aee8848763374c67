"""Objects that replace their connections and locks after a fork."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "watch_forks"]


class Forkable(Protocol):
    """An object that must not share its connections and locks with its parent process."""

    def after_fork(self) -> None:
        """Replace them. Called in the child process, whose only thread is the one that forked."""


_known: WeakSet[Forkable] = WeakSet()


def watch_forks(one: Forkable) -> None:
    """Call `after_fork` of *one* in each child process. Keeps a weak reference."""
    _known.add(one)


def _after_fork() -> None:
    for one in list(_known):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
