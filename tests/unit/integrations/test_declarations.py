"""Mistakes are reported when a limit is declared, and functions get what they expect."""

from __future__ import annotations

from typing import Any

import flask
import pytest

from headgate.errors import HeadgateError, OptionError
from headgate.integrations import RequestLimiter, RouteLimit
from headgate.integrations.fastapi import RateLimit
from headgate.integrations.flask import RateLimits
from headgate.integrations.starlette import limit

WRONG: list[dict[str, Any]] = [
    {"key": lambda: "x"},
    {"key": lambda _request, _other: "x"},
    {"cost": lambda: 1},
    {"exempt_when": lambda: True},
    {"charge_when": lambda: True},
]


@pytest.mark.parametrize("options", WRONG)
@pytest.mark.parametrize("declare", [RouteLimit, RequestLimiter, RateLimit, limit])
def test_a_function_that_cannot_be_called_is_reported_at_once(
    declare: Any, options: dict[str, Any]
) -> None:
    given = {"limits": "5/minute", **options}
    with pytest.raises(OptionError, match="expected a function of one argument"):
        declare(given.pop("limits"), **given) if declare in (RateLimit, limit) else declare(**given)


def test_two_limits_of_one_name_on_an_endpoint_are_reported_at_once() -> None:
    async def endpoint(request: Any) -> None: ...

    once = limit("5/minute", name="same")(endpoint)
    with pytest.raises(OptionError, match="name 'same' is given twice"):
        limit("9/hour", name="same")(once)


def test_an_endpoint_is_not_limited_by_what_is_no_limiter() -> None:
    async def endpoint(request: Any) -> None: ...

    with pytest.raises(HeadgateError, match="expected a RequestLimiter"):
        limit("5/minute", limiter="memory://")(endpoint)  # type: ignore[arg-type]


def test_functions_of_flask_may_have_no_parameters() -> None:
    app = flask.Flask(__name__)
    key: Any = lambda: flask.request.headers.get("x-user")  # noqa: E731
    limits = RateLimits(app, limits="2/minute", key=key)

    @app.get("/")
    @limits.limit(
        lambda: "3/minute",
        key=lambda: flask.request.headers.get("x-user"),
        cost=lambda: 2,
        exempt_when=lambda: flask.request.args.get("free") == "1",
    )
    def view() -> str:
        return "fine"

    client = app.test_client()
    assert client.get("/", headers={"x-user": "ann"}).status_code == 200
    assert client.get("/", headers={"x-user": "ann"}).status_code == 429
    assert client.get("/", headers={"x-user": "bob"}).status_code == 200
    assert client.get("/?free=1", headers={"x-user": "bob"}).status_code == 200
    assert client.get("/?free=1", headers={"x-user": "bob"}).status_code == 429
