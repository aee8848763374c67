"""Tests of the ASGI middleware see its quick way, whatever other tests have marked as exempt."""

from __future__ import annotations

import pytest

from headgate.integrations.asgi import fast_path


@pytest.fixture(autouse=True)
def nothing_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "EXEMPT_ONES", [])
