"""The policy in force in an app or a client, which follows its files."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.control.files import PolicyFiles
from headgate.control.watcher import PolicyWatcher
from headgate.errors import OptionError
from headgate.fork import watch_forks
from headgate.policy.model import Policy
from headgate.rule_engine import PolicyInForce

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.control.watcher import State


class WatchedPolicy(PolicyInForce):
    """The policy in force in an app or a client: *policy*, or the files at its path, watched.

    Raises `PolicyError` if the files cannot be read as one.
    """

    def __init__(
        self,
        policy: Policy | str | os.PathLike[str],
        *,
        salt: bytes,
        namespace: str,
        clock: Clock | None,
    ) -> None:
        self.files: PolicyFiles | None = None
        """The files to watch."""
        self._loaded = None
        if isinstance(policy, str | os.PathLike):
            self.files = PolicyFiles(Path(policy))
            self._loaded = self.files.load()
            policy = self._loaded.policy
        elif not isinstance(policy, Policy):
            raise OptionError(f"policy is {policy!r}; expected a path or a Policy")
        super().__init__(policy, salt=salt, namespace=namespace, clock=clock)
        self._watcher: PolicyWatcher | None = None
        self._starting = threading.Lock()
        watch_forks(self)

    def watch(self) -> None:
        """Watch the files, in this process too if it was forked."""
        if self.files is None or self._watcher is not None:
            return
        with self._starting:
            if self._watcher is None:
                self._watcher = PolicyWatcher(self.files, self.replace, in_force=self._loaded)
                self._watcher.start(is_checked=True)

    def after_fork(self) -> None:
        """Forget the watcher: its thread is not in this process, and its locks may stay taken."""
        self._watcher = None
        self._starting = threading.Lock()

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision."""
        self._loaded = None  # the first policy is in force no longer
        return super().replace(policy)

    @property
    def state(self) -> State | None:
        """The state of the files; None if they are not watched in this process."""
        return None if self._watcher is None else self._watcher.state

    def close(self) -> None:
        """Stop watching."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
