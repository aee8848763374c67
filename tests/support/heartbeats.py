"""Hearts that tell which beats were begun, and whether those are still wanted."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

from headgate.runtime import heartbeat
from headgate.runtime.drivers import drive
from headgate.runtime.heartbeat import Beat, Heart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects


class StillHeart(Heart):
    """A heart without a thread: tests say when it beats."""

    def __init__(self, clock: Clock = time.monotonic_ns) -> None:
        super().__init__(clock)
        self._most = 0  # every renewal is part of the round
        self._rounds.start = lambda due_ns=None: None  # type: ignore[method-assign]  # noqa: ARG005

    def renew_at(self, now_ns: int) -> None:
        """Renew what is due at *now_ns*."""
        clock, self.now = self.now, lambda: now_ns
        try:
            drive(self.renew_due())
        finally:
            self.now = clock


class Listened(StillHeart):
    """A heart without a thread that keeps all its beats."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Beat] = []

    def beat(
        self, renew: Callable[[], Effects[bool]], every_ns: int, owner: object | None = None
    ) -> Beat:
        self.begun.append(super().beat(renew, every_ns, owner))
        return self.begun[-1]

    @property
    def are_beating(self) -> list[bool]:
        """Of each beat whether it goes on."""
        gc.collect()
        return [beat.has_owner and not beat.is_over for beat in self.begun]


def listened(monkeypatch: pytest.MonkeyPatch) -> Listened:
    """The heart of the apps of this test that block."""
    heart = Listened()
    monkeypatch.setattr(heartbeat, "HEART", heart)
    return heart
