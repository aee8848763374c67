"""Hearts that tell which beats were begun, and whether those are still wanted."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from headgate.runtime import heartbeat
from headgate.runtime.heartbeat import Beat, Heart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Listened(Heart):
    """A heart without a thread."""

    is_running = True  # so none is started

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[Beat] = []

    def beat(self, renew: Callable[[], bool], every_ns: int, owner: object | None = None) -> Beat:
        self.beats.append(super().beat(renew, every_ns, owner))
        return self.beats[-1]

    @property
    def are_beating(self) -> list[bool]:
        """Of each beat whether it goes on."""
        gc.collect()
        return [beat.has_owner and not beat.is_over for beat in self.beats]


def listened(monkeypatch: pytest.MonkeyPatch) -> Listened:
    """The heart of the apps of this test that block."""
    heart = Listened()
    monkeypatch.setattr(heartbeat, "HEART", heart)
    return heart
