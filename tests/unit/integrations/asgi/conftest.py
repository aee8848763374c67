"""Tests of the ASGI middleware see its fast path, whatever other tests have marked as exempt."""

from __future__ import annotations

import pytest

from headgate.integrations import asgi


@pytest.fixture(autouse=True)
def nothing_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "EXEMPT_ONES", [])
