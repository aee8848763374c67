"""Unit tests use manual clocks: no fallback recovers in the background."""

import pytest

from headgate.runtime.background import BackgroundWork


@pytest.fixture(autouse=True)
def _without_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackgroundWork, "start", lambda _work, _due_ns=None: None)
