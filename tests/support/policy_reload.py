"""Reloading of one path, look by look, with all that came of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headgate.control import PolicyFiles, State
from headgate.control.watcher import Reload
from headgate.testing import ManualClock
from tests.support.policy_files import Applied, save

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control import Loaded

INTERVAL = 0.5
LOG = logging.getLogger("headgate.control")


class Trial:
    """A file, its reloading, and all that came of it."""

    def __init__(self, path: Path, *, begun: bool = False) -> None:
        self.file = path
        self.applied = Applied()
        self.states: list[State] = []
        self.clock = ManualClock()
        self.reload = self._reload(PolicyFiles(path).load() if begun else None)

    def _reload(self, in_force: Loaded | None) -> Reload:
        return Reload(
            PolicyFiles(self.file),
            self.applied,
            interval=INTERVAL,
            in_force=in_force,
            on_change=self.states.append,
            log=LOG,
            clock=self.clock,
        )

    @property
    def state(self) -> State:
        return self.reload.state

    def save(self, text: str) -> None:
        save(self.file, text)

    def looks(self, count: int) -> list[float]:
        return [self.reload.look() for _ in range(count)]

    def rest(self) -> None:
        """Look until all that there is to do is done."""
        self.looks(4)
