"""Functions that are limited, and called by a view that is not, without the middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate import Concurrency
from headgate.integrations.django import limit
from headgate.testing import ManualClock
from tests.support.django_project import OURS, fine, finely, project, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

both_ways = pytest.mark.parametrize("middleware", [(), (OURS,)], ids=["alone", "behind"])


def calling(*limited: Any) -> Callable[..., Any]:
    """A view that calls *limited* functions one after the other, until one refuses."""

    def view(request: HttpRequest) -> Any:
        for one in limited:
            response = one(request)
            if response.status_code != 200:
                break
        return response

    return view


def calling_async(*limited: Any) -> Callable[..., Any]:
    async def view(request: HttpRequest) -> Any:
        for one in limited:
            response = await one(request)
            if response.status_code != 200:
                break
        return response

    return view


ways = pytest.mark.parametrize(
    ("call", "function"), [(calling, fine), (calling_async, finely)], ids=["sync", "async"]
)


@ways
@both_ways
def test_each_of_them_frees_its_slot(
    middleware: tuple[str, ...], call: Any, function: Callable[..., Any]
) -> None:
    one, other = (limit(Concurrency(1, 60), name=name)(function) for name in ("one", "other"))
    with project({"a": call(one, other)}, middleware=middleware) as client:
        assert statuses(client, "/a", 3) == [200] * 3


@ways
@both_ways
def test_one_that_refuses_gives_back_what_those_before_it_charged(
    middleware: tuple[str, ...], call: Any, function: Callable[..., Any]
) -> None:
    slow, quick = limit("3/hour", name="slow")(function), limit("1/minute", name="quick")(function)
    clock = ManualClock()
    with project({"a": call(slow, quick)}, middleware=middleware, clock=clock) as client:
        for _ in range(3):
            assert statuses(client, "/a", 3) == [200, 429, 429]
            clock.advance(60)
        assert statuses(client, "/a", 1) == [429]
