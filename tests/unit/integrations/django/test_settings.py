"""The setting HEADGATE: options of a limiter, functions by their dotted path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings

from headgate.integrations.django import current_limiter
from headgate.integrations.django.settings import limiter_from
from headgate.integrations.request_limiter import LimiterOptions
from headgate.responses import ResponseOptions
from headgate.stores.base import Store
from headgate.stores.memory import MemoryStore
from tests.support.django_project import fine, get, project, statuses, statuses_async

PAGE = Path(__file__).parents[4] / "docs" / "apps.md"

if TYPE_CHECKING:
    from headgate.engine.request import Request


def by_key(request: Request) -> str | None:
    return request.header("x-key")


def by_plan(request: Request) -> str:
    return "2/minute" if request.header("x-key") == "paying" else "1/minute"


def test_an_unknown_option_is_named_with_the_nearest_word() -> None:
    with pytest.raises(ImproperlyConfigured, match="no option 'limit'; did you mean 'limits'"):
        limiter_from({"limit": "5/minute"})
    with pytest.raises(ImproperlyConfigured, match="'xyzzy'; expected charge_when, clock"):
        limiter_from({"xyzzy": 1})
    with pytest.raises(ImproperlyConfigured, match=r"'responses'.*'problems'.*'problem'"):
        limiter_from({"responses": {"problems": True}})


def test_a_wrong_value_is_told_of_as_a_setting() -> None:
    with pytest.raises(ImproperlyConfigured, match="HEADGATE: not a limit"):
        limiter_from({"limits": "5 parsecs"})
    with pytest.raises(ImproperlyConfigured, match="expected a dict"):
        limiter_from("5/minute")
    with pytest.raises(ImproperlyConfigured, match=r"HEADGATE\['key'\]"):
        limiter_from({"key": "no.such.function"})


def test_wrong_settings_are_told_of_when_the_middleware_is_made() -> None:
    with project({"a": fine}, limit="1/minute") as client, pytest.raises(ImproperlyConfigured):
        get(client, "/a")


def test_a_store_that_nobody_knows_is_told_of_then_too() -> None:
    for asking in (lambda: get(Client(), "/a"), lambda: statuses_async("/a", 1)):
        with (
            project({"a": fine}, store="redsi://localhost"),
            pytest.raises(ImproperlyConfigured, match=r"HEADGATE: .*redsi"),
        ):
            asking()


async def later(request: Request) -> str:
    return ""


def test_functions_that_have_to_be_awaited_are_refused_where_nobody_can() -> None:
    with project({"a": fine}, limits="1/minute", key=f"{__name__}.later"):
        with pytest.raises(ImproperlyConfigured, match="key is an async function"):
            get(Client(), "/a")
        assert statuses_async("/a", 2) == [200, 429]


def test_a_store_that_blocks_serves_an_event_loop_too() -> None:
    class Blocking(Store):
        def run(self, operation: Any) -> Any:
            return memory.run(operation)

    memory = MemoryStore()
    with project({"a": fine}, limits="1/minute", store=Blocking()) as client:
        assert statuses(client, "/a", 1) == [200]
        assert statuses_async("/a", 1) == [429]


def test_functions_are_found_by_their_dotted_path() -> None:
    with project({"a": fine}, limits=f"{__name__}.by_plan", key=f"{__name__}.by_key") as client:
        assert statuses(client, "/a", 2, x_key="poor") == [200, 429]
        assert statuses(client, "/a", 3, x_key="paying") == [200, 200, 429]


def test_options_for_responses_may_be_a_dict() -> None:
    assert limiter_from({"responses": {"problem": True}}).responses == ResponseOptions(problem=True)


def test_without_the_setting_there_is_a_gate_that_limits_nothing() -> None:
    assert limiter_from(None).limit is None


def test_there_is_one_gate_until_the_setting_changes() -> None:
    with override_settings(HEADGATE={"limits": "1/minute"}):
        first = current_limiter()
        assert current_limiter() is first
        with override_settings(DEBUG=True):
            assert current_limiter() is first
        with override_settings(HEADGATE={"limits": "2/minute"}):
            assert current_limiter() is not first


def test_the_page_names_every_option() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(LimiterOptions.__annotations__) - named == set()
