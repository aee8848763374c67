"""Functions of the request, awaited where the app is async."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import UsageError
from headgate.integrations.route_limit import resolved
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from headgate.runtime.effects import Effects


def adding(*results: object) -> Effects[int]:
    total = 0
    for result in results:
        total += yield from resolved(result)
    return total


async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value


class Awaitable:
    def __await__(self) -> Any:
        return later(5).__await__()


def test_plain_results_need_no_driver_of_either_kind() -> None:
    assert drive(adding(1, 2)) == 3
    assert drive(adding()) == 0
    assert asyncio.run(adrive(adding(1, 2))) == 3


def test_awaitable_results_are_awaited() -> None:
    async def scenario() -> int:
        return await adrive(adding(1, later(2), Awaitable(), asyncio.ensure_future(later(3))))

    assert asyncio.run(scenario()) == 11


@pytest.mark.parametrize("awaited", [lambda: later(1), Awaitable])
def test_awaitable_results_are_an_error_in_an_app_that_blocks(awaited: Any) -> None:
    with pytest.raises(UsageError, match="this app is not async"):
        drive(adding(awaited()))


def test_errors_of_functions_are_not_masked() -> None:
    async def failing() -> int:
        raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        asyncio.run(adrive(adding(failing())))
