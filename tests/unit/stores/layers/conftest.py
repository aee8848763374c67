from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.store_calls import DRIVERS, Calls

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=DRIVERS)
def calls(request: pytest.FixtureRequest) -> Iterator[Calls]:
    one = Calls(request.param)
    yield one
    one.end()
