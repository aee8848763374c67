"""A leased store in each of the two drivers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.stores.layers.leases import store
from tests.support.lease_remote import Driven

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["threads", "loop"])
def driven(request: pytest.FixtureRequest) -> Iterator[Driven]:
    if request.param == "threads":
        yield Driven(None)
        return
    with asyncio.Runner() as runner:
        yield Driven(runner)


@pytest.fixture(autouse=True)
def _with_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers wait for a lease that another caller has requested, however slow the machine is."""
    monkeypatch.setattr(store, "PATIENCE", 60.0)
