"""Django projects of the contract, served by WSGI and by ASGI; and views of REST framework."""

from __future__ import annotations

import re
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

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
from headgate.testing.integration_contract.app import HeadersOf
from tests.support.django_project import OURS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import ExitStack

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

    interface: ClassVar[Literal["asgi", "wsgi"]] = "wsgi"

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
            MIDDLEWARE=[OURS] if self.has_app_limits else [],
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


class _Handler(ASGIHandler):
    """Closes the bodies of requests at the end of the test: Django leaves some of them open."""

    def __init__(self, closing: ExitStack) -> None:
        super().__init__()
        self._closing = closing

    async def read_body(self, receive: Any) -> Any:
        body: Any = await super().read_body(receive)
        self._closing.callback(body.close)
        return body


class AsyncDjangoContract(DjangoContract):
    """The same with async views under ASGI.

    It declares no `can_cancel`: Django's ASGI handler cancels a view only if the client
    disconnects, not if the handler's own task is cancelled.
    """

    interface = "asgi"
    reads_while_sending = False  # Django reads all of a body before it calls the view

    def handler(self) -> Any:
        return _Handler(self.closing)

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

        own = route.limit or {}
        is_throttle = route.limit is not None and own.keys() <= _BY_THROTTLE
        throttles = [_throttle_of(route)] if is_throttle else []
        contents = {"get": respond, "post": respond, "throttle_classes": throttles}
        kind: Any = type(f"View {route.mount}{route.path}", (APIView,), contents)
        view: Callable[..., Any] = kind.as_view()
        return _limited(view, replace(route, limit=None) if is_throttle else route)


def named(view: Callable[..., Any], route: Route) -> Callable[..., Any]:
    """*view* with a name of its own: counters of Django are named after views."""
    view.__qualname__ = view.__name__ = f"view {route.mount}{route.path}"
    return view


def _limited(view: Callable[..., Any], route: Route) -> Callable[..., Any]:
    if route.limit is not None:
        view = limit(**native_options(route.limit, headers_of))(view)
    return exempt(view) if route.is_exempt else view


_BY_THROTTLE = frozenset(("limits", "key", "cost", "name", "on_store_failure", "exempt_when"))


def _throttle_of(route: Route) -> type[RateLimitThrottle]:
    """A class of throttles with the limit of *route*."""
    options = dict(route.limit or {})

    def value(option: str, request: Any, default: Any) -> Any:
        given = options.get(option, default)
        return given(HeadersOf(request.headers)) if isinstance(given, FunctionType) else given

    class Throttle(RateLimitThrottle):
        name = options.get("name")
        on_store_failure = options.get("on_store_failure", "fail_open")

        def get_limits(self, request: Any, view: APIView) -> Any:
            is_exempt = value("exempt_when", request, default=False)
            return None if is_exempt else value("limits", request, None)

        def get_key(self, request: Any, view: APIView) -> Any:
            return value("key", request, None)

        def get_cost(self, request: Any, view: APIView) -> Any:
            return value("cost", request, 1)

    Throttle.__qualname__ = f"Throttle {route.mount}{route.path}"
    return Throttle
