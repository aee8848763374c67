"""Django projects of the contract, served by WSGI and by ASGI; and views of REST framework."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import include, path
from rest_framework.views import APIView

from headgate.integrations.django import exempt, limit, report
from headgate.integrations.drf import RateLimitThrottle
from headgate.testing.integration_contract import IntegrationContract, native_options
from tests.support.django_project import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.testing.integration_contract import Answer, AppSpec, Route


class DjangoCall:
    """A request of Django, or of REST framework."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def header(self, name: str) -> str | None:
        found: str | None = self._request.headers.get(name)
        return found

    def read(self, size: int) -> bytes:
        part: bytes = self._request.read(size)
        return part

    async def parts(self) -> AsyncIterator[bytes]:
        yield self._request.read()

    def report(self, amounts: Mapping[str, int]) -> None:
        report(self._request, amounts)

    def forbid(self) -> Answer:
        raise PermissionDenied


def headers_of(request: Any) -> Mapping[str, str]:
    return cast("Mapping[str, str]", request.headers)


def response_of(answer: Answer) -> Any:
    """The response of Django for *answer*."""
    kind: Any = HttpResponse if isinstance(answer.body, bytes) else StreamingHttpResponse
    return kind(answer.body, status=answer.status, headers=dict(answer.headers))


class DjangoContract(IntegrationContract):
    """The middleware, and `limit` on views, under WSGI."""

    interface = "wsgi"

    def build(self, spec: AppSpec) -> Any:
        patterns = []
        for route in spec.routes:
            where = re.sub(r"\{(\w+)\}", r"<\1>", route.path.lstrip("/"))
            pattern: Any = path(where, self.view(spec, route))
            if route.mount:
                pattern = path(f"{route.mount.strip('/')}/", include([pattern]))
            patterns.append(pattern)
        settings = override_settings(
            ROOT_URLCONF=tuple(patterns),
            MIDDLEWARE=[OURS],
            HEADGATE=dict(spec.options),
            DEBUG=False,
            **self.settings(),
        )
        settings.enable()
        self.closing.callback(settings.disable)
        return self.handler()

    def settings(self) -> dict[str, Any]:
        """More settings of the project."""
        return {}

    def handler(self) -> Any:
        """The app of the project."""
        return WSGIHandler()

    def view(self, spec: AppSpec, route: Route) -> Callable[..., Any]:
        """The view of *route*."""

        def view(request: HttpRequest, **_: str) -> Any:
            return response_of(spec.script.play(route.behaviour, DjangoCall(request)))

        return _limited(named(view, route), route)


class AsyncDjangoContract(DjangoContract):
    """The same with async views under ASGI."""

    interface = "asgi"
    can_cancel = True
    reads_while_sending = False  # Django reads all of a body before it calls the view

    def handler(self) -> Any:
        return ASGIHandler()

    def view(self, spec: AppSpec, route: Route) -> Callable[..., Any]:
        async def view(request: HttpRequest, **_: str) -> Any:
            return response_of(await spec.script.aplay(route.behaviour, DjangoCall(request)))

        return _limited(named(view, route), route)


class DrfContract(DjangoContract):
    """The middleware, and throttles on views of REST framework.

    A throttle decides when a request begins; limits that need its end are those of Django.
    """

    def settings(self) -> dict[str, Any]:
        return {"REST_FRAMEWORK": {"UNAUTHENTICATED_USER": None}}

    def view(self, spec: AppSpec, route: Route) -> Callable[..., Any]:
        def respond(_self: APIView, request: Any, **_: str) -> Any:
            return response_of(spec.script.play(route.behaviour, DjangoCall(request)))

        throttle = _throttle(route)
        contents = {"get": respond, "post": respond, "throttle_classes": throttle}
        kind: Any = type(f"View{route.path}", (APIView,), contents)
        view: Callable[..., Any] = kind.as_view()
        return exempt(view) if route.is_exempt else view


def named(view: Callable[..., Any], route: Route) -> Callable[..., Any]:
    """*view* with a name of its own: counters of Django are named after views."""
    view.__qualname__ = view.__name__ = f"view {route.mount}{route.path}"
    return view


def _limited(view: Callable[..., Any], route: Route) -> Callable[..., Any]:
    if route.limit is not None:
        view = limit(**native_options(route.limit, headers_of))(view)
    return exempt(view) if route.is_exempt else view


def _throttle(route: Route) -> list[type[RateLimitThrottle]]:
    return []


_ = (asyncio, io, sync_to_async)
