"""A leased store in each of the two drivers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

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
