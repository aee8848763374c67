"""Limits that are made for a single request, which would count for themselves."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path
from django.views import View

from headgate.errors import UsageError
from headgate.integrations.django import limit
from tests.support.django_project import (
    OURS,
    SIGNING,
    fine,
    finely,
    get,
    project,
    statuses,
    statuses_async,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def calling(request: HttpRequest) -> Any:
    return limit("2/minute")(fine)(request)


async def calling_async(request: HttpRequest) -> Any:
    return await limit("2/minute")(finely)(request)


def defining(request: HttpRequest) -> HttpResponse:
    @limit("2/minute")
    def inner(request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    return inner(request)


class Dispatching(View):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return limit("2/minute")(super().dispatch)(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")


class Wrapping:
    """A middleware that limits what is below it, anew for each request."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return limit("2/minute")(self.get_response)(request)


@pytest.mark.parametrize("view", [calling, calling_async, defining, Dispatching.as_view()])
@pytest.mark.parametrize("middleware", [(), (OURS,), (SIGNING, OURS), (OURS, SIGNING)])
def test_a_limit_that_is_made_for_each_request_is_told_of(
    view: Callable[..., Any], middleware: tuple[str, ...]
) -> None:
    with project({"a": view}, middleware=middleware) as client:
        with pytest.raises(UsageError, match="while a request is being served"):
            get(client, "/a")
        with pytest.raises(UsageError, match="or give it a name"):
            statuses_async("/a", 1)


def test_so_is_one_that_a_middleware_makes() -> None:
    with project({"a": fine}, middleware=(f"{__name__}.Wrapping",)) as client:
        with pytest.raises(UsageError, match="where the view is defined"):
            get(client, "/a")
        with pytest.raises(UsageError, match="where the view is defined"):
            statuses_async("/a", 1)


class Naming(Dispatching):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        dispatch = super(Dispatching, self).dispatch
        return limit("2/minute", name="named")(dispatch)(request, *args, **kwargs)


def test_with_a_name_it_is_a_limit_like_any_other() -> None:
    def naming(request: HttpRequest) -> Any:
        return limit("2/minute", name="named")(fine)(request)

    for view in (naming, Naming.as_view()):
        with project({"a": view}, middleware=()) as client:
            assert statuses(client, "/a", 3) == [200, 200, 429]


once = limit("2/minute")


def test_one_that_is_made_before_may_be_applied_for_each_request() -> None:
    def applying(request: HttpRequest) -> Any:
        return once(fine)(request)

    with project({"a": applying}) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]


class LateUrls:
    """A URLconf that is made when it is read, with the first request."""

    @cached_property
    def urlpatterns(self) -> list[Any]:
        return [path("a", limit("2/minute")(fine))]


def test_what_is_made_when_the_urlconf_is_read_stays() -> None:
    for middleware in [(), (OURS,)]:
        with (
            project({}, middleware=middleware) as client,
            override_settings(ROOT_URLCONF=LateUrls()),
        ):
            assert statuses(client, "/a", 3) == [200, 200, 429]


def test_so_does_what_a_module_makes_that_a_view_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_views.py").write_text(
        "from headgate.integrations.django import limit\n"
        "from tests.support.django_project import fine\n"
        "late = limit('2/minute')(fine)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def importing(request: HttpRequest) -> Any:
        from late_views import late  # type: ignore[import-not-found]

        return late(request)

    with project({"a": importing}) as client:
        assert statuses(client, "/a", 3) == [200, 200, 429]
    monkeypatch.delitem(sys.modules, "late_views")


def test_a_test_that_has_a_request_may_make_a_limit() -> None:
    request = RequestFactory().get("/")
    with project({}):
        view = limit("1/minute")(fine)
        assert [view(request).status_code for _ in range(2)] == [200, 429]
