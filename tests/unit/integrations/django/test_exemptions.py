"""What the limits of a project are not for: named paths, and views that are marked."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import Resolver404, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from headgate.integrations import django as django_module
from headgate.integrations import exemptions
from headgate.integrations.django import exempt, limit
from headgate.integrations.exemptions import EXEMPT_ONES
from tests.support.django_project import fine, project, statuses, statuses_async

if TYPE_CHECKING:
    import pytest


class Health(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")


@exempt
class Marked(Health):
    pass


@method_decorator(exempt, name="dispatch")
class Dispatched(Health):
    pass


@exempt
def unlimited(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@exempt
@limit("1/minute")
def limited_by_itself(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


def test_views_that_are_marked_are_exempt_from_the_first_request_on() -> None:
    views = {
        "a": unlimited,
        "b": Marked.as_view(),
        "c": Dispatched.as_view(),
        "d": limited_by_itself,
        "e": fine,
    }
    with project(views, limits="1/minute") as client:
        for where in "abc":
            assert statuses(client, f"/{where}", 3) == [200] * 3
        assert statuses(client, "/d", 2) == [200, 429]
        assert statuses(client, "/e", 2) == [200, 429]
    with project(views, limits="1/minute"):
        assert statuses_async("/a", 3) == [200] * 3


class OfMarked(Marked):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("not for everybody")


class OfDispatched(Dispatched):
    pass


class MarkedToo(OfMarked):
    pass


def test_what_is_made_of_a_view_that_is_exempt_is_not() -> None:
    for view in (OfMarked, OfDispatched, MarkedToo):
        with project({"a": view.as_view()}, limits="1/minute") as client:
            assert statuses(client, "/a", 2) == [200, 429]


def test_unless_it_is_marked_itself() -> None:
    @exempt
    class Own(OfMarked):
        pass

    for view in (
        Own.as_view(),
        exempt(OfMarked.as_view()),
        never_cache(exempt(OfDispatched.as_view())),
    ):
        with project({"a": view}, limits="1/minute") as client:
            assert statuses(client, "/a", 3) == [200] * 3


def test_marking_costs_nothing_with_each_request() -> None:
    with project({"a": Dispatched.as_view()}, limits="1/minute") as client:
        before = len(EXEMPT_ONES)
        assert statuses(client, "/a", 3) == [200] * 3
        assert len(EXEMPT_ONES) == before


class LateUrls:
    """A URLconf that marks its view when it is read, as modules do when they are imported."""

    @cached_property
    def urlpatterns(self) -> list[Any]:
        def marked(request: HttpRequest) -> HttpResponse:
            return HttpResponse("fine")

        return [path("marked", exempt(marked)), path("a", fine)]


def test_a_view_is_exempt_even_if_it_is_read_with_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_key: list[str] = []
    for module in (exemptions, django_module):
        monkeypatch.setattr(module, "EXEMPT_ONES", no_key)
    with (
        project({}, limits="1/minute") as client,
        override_settings(ROOT_URLCONF=LateUrls()),
    ):
        assert statuses(client, "/marked", 3) == [200] * 3
        assert statuses(client, "/a", 2) == [200, 429]


def test_views_are_looked_for_only_if_any_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def resolve(path: str, urlconf: object) -> None:
        looked.append(path)
        raise Resolver404

    monkeypatch.setattr(django_module, "EXEMPT_ONES", [])
    monkeypatch.setattr(django_module, "resolve", resolve)
    with project({"a": fine}, limits="9/minute") as client:
        assert statuses(client, "/a", 3) == [200] * 3
        assert looked == ["/a"]
