"""Limits in the wrong order with routes: reported, not lost in silence."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask

from headgate.errors import UsageError
from tests.support.flask_apps import ask, codes, made

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.integrations.flask import RateLimits


def loud(view: Callable[[], str]) -> Callable[[], str]:
    """A decorator as others write them."""

    @functools.wraps(view)
    def wrapper() -> str:
        return view().upper()

    return wrapper


def hello() -> Callable[[], str]:
    """A view of its own."""

    def index() -> str:
        return "hello"

    return index


def above(app: Flask, limits: RateLimits) -> None:
    limits.limit("1/minute")(app.get("/")(hello()))


def above_another(app: Flask, limits: RateLimits) -> None:
    limits.limit("1/minute")(loud(app.get("/")(hello())))


def above_and_below(app: Flask, limits: RateLimits) -> None:
    limits.limit("1/minute")(app.get("/")(limits.limit("9/hour")(hello())))


def above_in_a_blueprint(app: Flask, limits: RateLimits) -> None:
    users = Blueprint("users", "asked")
    limits.limit("1/minute")(users.get("/")(hello()))
    app.register_blueprint(users)


@pytest.mark.parametrize("wrong", [above, above_another, above_and_below, above_in_a_blueprint])
def test_a_limit_above_the_route_is_an_error_not_no_limit(
    wrong: Callable[[Flask, RateLimits], None],
) -> None:
    app, limits = made()
    app.testing = True
    wrong(app, limits)
    for _ in range(2):
        with pytest.raises(
            UsageError, match=r"index' has a limit that its route does not know of.* below @app"
        ):
            ask(app)


def test_other_views_are_served_all_the_same() -> None:
    app, limits = made()
    above(app, limits)
    app.add_url_rule("/other", "other", limits.limit("1/minute")(hello()))
    assert ask(app).status_code == 500
    assert codes(app, "/other", times=2) == [200, 429]
    assert codes(app, "/missing", times=1) == [404]


def test_a_function_may_be_a_view_with_and_without_its_limit() -> None:
    app, limits = made()
    free: Any = hello()
    app.add_url_rule("/free", "free", free)
    app.add_url_rule("/limited", "limited", loud(limits.limit("1/minute")(loud(free))))
    assert codes(app, "/free", times=3) == [200] * 3
    assert codes(app, "/limited", times=2) == [200, 429]


def test_what_a_request_limits_for_itself_leaves_views_as_they_are() -> None:
    app, limits = made()
    index = app.get("/")(hello())

    @app.get("/again")
    def again() -> str:
        return limits.limit("1/minute")(index)()

    assert codes(app, "/again", times=2) == [200, 429]
    assert codes(app, times=2) == [200, 200]


def test_what_another_app_limits_is_a_view_without_its_limit_here() -> None:
    shared: Any = hello()
    (app, _), (other, limits) = made(), made()
    app.add_url_rule("/", "index", shared)
    other.add_url_rule("/", "index", limits.limit("1/minute")(shared))
    assert codes(app, times=2) == [200, 200]
    assert codes(other, times=2) == [200, 429]
