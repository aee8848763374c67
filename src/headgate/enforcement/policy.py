"""The policy of an app: given as it is, or in files that are watched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.control import PolicyFiles, PolicyWatcher
from headgate.engine import PolicyInForce
from headgate.errors import OptionError
from headgate.rules.model import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.control import State
    from headgate.engine import Engine
    from headgate.engine.softening import Scale


class AppPolicy:
    """The rules in force in an app. *policy* is one, or the path of a file or a directory.

    Raises `PolicyError` if the files cannot be read as one.
    """

    def __init__(
        self,
        policy: Policy | str | os.PathLike[str],
        *,
        salt: bytes,
        namespace: str,
        clock: Clock | None = None,
    ) -> None:
        self._files = self._loaded = None
        if isinstance(policy, Policy):
            rules = policy
        elif isinstance(policy, str | os.PathLike):
            self._files = PolicyFiles(Path(policy))
            self._loaded = self._files.load()
            rules = self._loaded.policy
        else:
            raise OptionError(f"policy is {policy!r}; expected a path or a Policy")
        self._in_force = PolicyInForce(rules, salt=salt, namespace=namespace, clock=clock)
        self._watchers: dict[int, PolicyWatcher] = {}

    @property
    def engine(self) -> Engine:
        """That of the rules in force."""
        return self._in_force.engine

    @property
    def scale(self) -> Scale:
        """What pressure has brought limits down to."""
        return self._in_force.scale

    def tell(self, listener: Callable[[Engine], None]) -> None:
        """Have *listener* told the engine that is in force, and each one that is about to be."""
        self._in_force.tell(listener)

    def watch(self) -> None:
        """See that the files are watched, in this process too if it was forked."""
        if self._files is None or (here := os.getpid()) in self._watchers:
            return
        # One of its own for each process: after a fork, locks of the old one may stay taken.
        watcher = PolicyWatcher(self._files, self._replace, in_force=self._loaded)
        self._watchers.setdefault(here, watcher).start(is_checked=True)

    def _replace(self, policy: Policy) -> int:
        self._loaded = None  # what was read first is in force no longer
        return self._in_force.replace(policy)

    @property
    def state(self) -> State | None:
        """How the files stand; None if they are not watched in this process."""
        watcher = self._watchers.get(os.getpid())
        return None if watcher is None else watcher.state

    def close(self) -> None:
        """Watch no longer."""
        watcher = self._watchers.pop(os.getpid(), None)
        if watcher is not None:
            watcher.stop()
