"""Tests of the ASGI middleware see its quick way, whatever other tests have marked as exempt."""

from __future__ import annotations

import pytest

from headgate.enforcement.asgi import quick


@pytest.fixture(autouse=True)
def nothing_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "EXEMPT_ONES", [])
