"""Unit tests use manual clocks: no recovery from an outage goes on in the background."""

from typing import Any

import pytest

from headgate.runtime.background import BackgroundWork


@pytest.fixture(autouse=True)
def _without_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    start = BackgroundWork.start

    def start_others(work: BackgroundWork[Any], due_ns: int | None = None) -> None:
        if work._name != "headgate-recovery":
            start(work, due_ns)

    monkeypatch.setattr(BackgroundWork, "start", start_others)
