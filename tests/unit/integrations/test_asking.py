"""Functions of the request, awaited where the app is async."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import UsageError
from headgate.integrations.passing import answered, answered_async

if TYPE_CHECKING:
    from headgate.integrations.allowance import Asking


def adding(*values: object) -> Asking[int]:
    total = 0
    for value in values:
        total += yield value
    return total


async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value


class Awaitable:
    def __await__(self) -> Any:
        return later(5).__await__()


def test_plain_values_are_what_they_are() -> None:
    assert answered(adding(1, 2)) == 3
    assert answered(adding()) == 0
    assert asyncio.run(answered_async(adding(1, 2))) == 3


def test_what_has_to_be_awaited_is() -> None:
    async def scenario() -> int:
        return await answered_async(
            adding(1, later(2), Awaitable(), asyncio.ensure_future(later(3)))
        )

    assert asyncio.run(scenario()) == 11


@pytest.mark.parametrize("awaited", [lambda: later(1), Awaitable])
def test_what_has_to_be_awaited_is_refused_in_an_app_that_blocks(awaited: Any) -> None:
    with pytest.raises(UsageError, match="this app is not async"):
        answered(adding(awaited()))


def test_errors_of_functions_are_not_masked() -> None:
    async def failing() -> int:
        raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        asyncio.run(answered_async(adding(failing())))
