"""What is limited apart is counted apart, and under the same name in every process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask

from headgate.integrations import RequestLimiter
from headgate.integrations.flask import LimitedFunctions, RateLimits
from headgate.testing import ManualClock
from tests.support.flask_apps import ask, codes, left, made

if TYPE_CHECKING:
    from collections.abc import Callable


def calling(app: Flask, **functions: Callable[[], str]) -> None:
    """Views that call *functions*, which are no views themselves."""
    for name, function in functions.items():
        app.add_url_rule(f"/{name}", name, functools.partial(_called, function))


def _called(function: Callable[[], str]) -> str:
    return function()


def greeting(name: str) -> str:
    return f"hello {name}"


@dataclass
class Greeting:
    """A callable that cannot be hashed."""

    name: str

    def __call__(self) -> str:
        return f"hello {self.name}"

    def said(self) -> str:
        return f"{self.name} said hello"


def closure(name: str) -> Callable[[], str]:
    def greet() -> str:
        return f"hello {name}"

    return greet


@pytest.mark.parametrize(
    "make",
    [
        lambda name: functools.partial(greeting, name),
        lambda name: functools.partial(functools.partial(greeting), name),
        lambda name: lambda: f"hello {name}",
        closure,
        Greeting,
        lambda name: Greeting(name).said,
    ],
    ids=["partial", "partial of a partial", "lambda", "closure", "callable", "method"],
)
def test_functions_of_one_name_are_counted_apart(make: Callable[[str], Any]) -> None:
    app, limits = made()
    limit = limits.limit("1/minute")
    calling(app, a=limit(make("a")), b=limit(make("b")))
    assert [ask(app, path).status_code for path in ("/a", "/b", "/a", "/b")] == [200, 200, 429, 429]


def test_a_partial_is_called_after_what_it_calls() -> None:
    app, limits = made()
    view = limits.limit("9/minute")(functools.partial(greeting, "ann"))
    app.add_url_rule("/", view_func=view)
    assert list(app.view_functions) == ["static", "greeting"]
    assert left(ask(app)) == {"greeting": 8}


def test_names_are_those_of_the_program_in_its_order() -> None:
    known = LimitedFunctions()
    functions = [greeting, functools.partial(greeting, "ann"), functools.partial(greeting, "bob")]
    here = f":{__name__}.greeting"
    assert [known.counter(one) for one in functions] == [here, f"{here}#1", f"{here}#2"]
    assert known.counter(Greeting("ann")) == f":{__name__}.Greeting"
    assert known.counter(Greeting("ann").said) == f":{__name__}.Greeting.said"
    assert LimitedFunctions().counter(functions[2]) == here


def test_what_is_limited_anew_by_each_request_is_one_function() -> None:
    app, limits = made()

    @app.get("/")
    def index() -> str:
        return limits.limit("1/minute")(lambda: "hello")()

    assert codes(app, times=2) == [200, 429]


def test_one_function_below_two_others_is_limited_by_each_apart() -> None:
    app, limits = made()

    def shouted(function: Callable[[], str]) -> Callable[[], str]:
        return functools.wraps(function)(lambda: function().upper())

    inner = limits.limit("9/minute")(closure("ann"))
    first, second = (limits.limit("1/minute")(shouted(inner)) for _ in range(2))
    calling(app, a=first, b=second)
    assert [ask(app, path).status_code for path in ("/a", "/b", "/a")] == [200, 200, 429]


def test_views_and_blueprints_of_apps_that_share_a_gate_are_counted_apart() -> None:
    limits = RateLimits(limiter=RequestLimiter(clock=ManualClock(100)))
    apps = [Flask("shop"), Flask("admin")]
    for app in apps:
        limits.init_app(app)
        app.add_url_rule("/", "index", limits.limit("1/minute")(lambda: "hello"))
        users = limits.limit("1/minute")(Blueprint("users", "asked"))
        users.add_url_rule("/users", "index", lambda: "users")
        app.register_blueprint(users)
    for path in ("/", "/users"):
        assert [codes(app, path, times=2) for app in apps] == [[200, 429]] * 2


def test_blueprints_of_one_name_in_different_ones_are_counted_apart() -> None:
    app, limits = made()
    for parent in (Blueprint("a", "asked", url_prefix="/a"), Blueprint("b", "x", url_prefix="/b")):
        users = limits.limit("1/minute")(Blueprint("users", "asked"))
        users.add_url_rule("/", "index", lambda: "users")
        parent.register_blueprint(users)
        app.register_blueprint(parent)
    assert [ask(app, path).status_code for path in ("/a/", "/b/", "/a/")] == [200, 200, 429]
    assert ask(app, "/b/").headers["RateLimit-Policy"] == '"users";q=1;w=60'


def test_a_blueprint_that_is_registered_twice_is_counted_apart() -> None:
    app, limits = made()
    users = limits.limit("1/minute")(Blueprint("users", "asked"))
    users.add_url_rule("/", "index", lambda: "users")
    app.register_blueprint(users, url_prefix="/a")
    app.register_blueprint(users, url_prefix="/b", name="others")
    assert [ask(app, path).status_code for path in ("/a/", "/b/", "/a/")] == [200, 200, 429]
    assert ask(app, "/b/").headers["RateLimit-Policy"] == '"others";q=1;w=60'


def test_an_endpoint_with_dots_in_it_is_in_the_blueprints_that_there_are() -> None:
    app, limits = made()
    users = limits.limit("1/minute")(Blueprint("users", "asked"))
    app.register_blueprint(users)
    app.add_url_rule("/", "users.old.index", lambda: "hello")
    assert codes(app, times=2) == [200, 429]
