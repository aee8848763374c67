"""Unit tests have the time they make up: nothing looks after a store in the background."""

import pytest

from headgate.runtime.store_watch import Watch


@pytest.fixture(autouse=True)
def _without_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "begin", lambda _watch: None)
