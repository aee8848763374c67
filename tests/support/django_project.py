"""A Django project for the length of a test: its URLs, its middleware and its setting."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

OURS = "headgate.integrations.django.RateLimitMiddleware"


class Signing:
    """A middleware that believes the header X-User, as one for logins would a session."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        request.user = User(request.headers.get("X-User"))  # type: ignore[assignment]
        return self.get_response(request)


class User:
    def __init__(self, name: str | None) -> None:
        self.pk = name
        self.is_authenticated = name is not None


SIGNING = f"{__name__}.Signing"


@contextmanager
def project(
    views: dict[str, Callable[..., Any]] | Sequence[Any],
    *,
    middleware: Sequence[str] = (OURS,),
    others: dict[str, Any] | None = None,
    **headgate: Any,
) -> Iterator[Client]:
    """A project that serves *views* by their paths, and a client of it."""
    patterns = (
        [path(route.lstrip("/"), view) for route, view in views.items()]
        if isinstance(views, dict)
        else views
    )
    if "store" not in headgate:
        headgate.setdefault("clock", ManualClock())
    with override_settings(
        ROOT_URLCONF=tuple(patterns),
        MIDDLEWARE=list(middleware),
        HEADGATE=headgate,
        **(others or {}),
    ):
        yield Client()


def statuses(client: Client, where: str, times: int, **headers: str) -> list[int]:
    return [get(client, where, **headers).status_code for _ in range(times)]


def get(client: Client, where: str, **headers: str) -> Any:
    return client.get(where, headers={k.replace("_", "-"): v for k, v in headers.items()})


def statuses_async(where: str, times: int) -> list[int]:
    """What the same project answers under ASGI."""

    async def ask() -> list[int]:
        client = AsyncClient()
        return [(await client.get(where)).status_code for _ in range(times)]

    return asyncio.run(ask())


def fine(request: HttpRequest, **_: object) -> HttpResponse:
    return HttpResponse("fine")


async def finely(request: HttpRequest, **_: object) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("fine")
