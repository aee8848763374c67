"""Limits of blueprints: for all their views together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flask import Blueprint, g, request

from headgate.testing import ManualClock
from tests.support.flask_apps import CountingStore, ask, codes, left, made

if TYPE_CHECKING:
    from headgate.integrations.flask import RateLimits


def nested(limits: RateLimits) -> tuple[Blueprint, Blueprint]:
    inner = Blueprint("inner", "asked", url_prefix="/inner")
    inner.add_url_rule("/", "index", lambda: "inner")
    inner.add_url_rule("/free", "free", limits.exempt(lambda: "free"))
    outer = Blueprint("outer", "asked", url_prefix="/outer")
    outer.add_url_rule("/", "index", lambda: "outer")
    outer.register_blueprint(inner)
    return outer, inner


def test_the_views_of_a_blueprint_share_its_limit_those_of_blueprints_in_it_too() -> None:
    app, limits = made(limits="9/minute")
    outer, _ = nested(limits)
    limits.limit("2/minute")(outer)
    app.register_blueprint(outer)
    app.add_url_rule("/", "index", lambda: "hello")
    assert [ask(app, path).status_code for path in ("/outer/", "/outer/inner/", "/outer/")] == [
        200,
        200,
        429,
    ]
    assert ask(app, "/outer/").headers["RateLimit-Policy"] == '"outer";q=2;w=60'
    assert left(ask(app)) == {"default": 6}
    assert codes(app, "/outer/inner/free", times=3) == [200] * 3


def test_what_an_inner_blueprint_refuses_the_outer_one_gives_back() -> None:
    app, limits = made()
    outer, inner = nested(limits)
    limits.limit("3/minute")(outer)
    limits.limit("1/minute")(inner)
    app.register_blueprint(outer)
    assert left(ask(app, "/outer/inner/")) == {"outer": 2, "inner": 0}
    assert codes(app, "/outer/inner/", times=3) == [429] * 3
    assert left(ask(app, "/outer/")) == {"outer": 1}


def test_stacked_limits_of_a_blueprint_are_asked_once() -> None:
    store = CountingStore(clock=ManualClock(100))
    app, limits = made(store=store, clock=None)
    users = Blueprint("users", "asked")
    users.add_url_rule("/", "index", lambda: "hello")
    assert limits.limit("4/hour")(limits.limit("2/minute")(users)) is users
    app.register_blueprint(users)
    assert left(ask(app)) == {"users": 1, "users-2": 3}
    assert store.asked == 1
    assert codes(app, times=2) == [200, 429]


def test_a_blueprint_may_find_out_who_asks_before_its_next_limit() -> None:
    app, limits = made()
    users = Blueprint("users", "asked")
    users.add_url_rule("/", "index", lambda: "hello")
    limits.limit("9/minute")(users)

    @users.before_request
    def load() -> None:
        g.user = request.args.get("who")

    limits.limit("1/minute", key=lambda _: g.user)(users)
    app.register_blueprint(users)
    assert [ask(app, f"/?who={who}").status_code for who in "aba"] == [200, 200, 429]
    assert left(ask(app, "/?who=c")) == {"users": 6, "users-2": 0}


def test_limits_of_a_blueprint_that_are_asked_apart_are_counted_apart() -> None:
    app, limits = made()
    users = Blueprint("users", "asked")
    users.add_url_rule("/", "index", lambda: "hello")
    limits.limit("9/minute")(users)
    users.before_request(lambda: None)
    limits.limit("5/minute")(users)
    app.register_blueprint(users)
    assert left(ask(app)) == {"users": 8, "users-2": 4}


@pytest.mark.parametrize("name", ["shared", None])
def test_preflights_that_flask_answers_are_counted_apart(name: str | None) -> None:
    app, limits = made()
    users = limits.limit("2/minute", name=name)(Blueprint("users", "asked"))
    users.add_url_rule("/", "index", lambda: "hello")
    app.register_blueprint(users)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    preflights = [ask(app, method="OPTIONS", headers=asked) for _ in range(3)]
    assert [one.status_code for one in preflights] == [200, 200, 429]
    assert "RateLimit" not in preflights[0].headers
    assert codes(app, times=3) == [200, 200, 429]


def test_preflights_are_counted_with_the_others_if_the_gate_says_so() -> None:
    app, limits = made(limits_preflights=True)
    users = limits.limit("1/minute")(Blueprint("users", "asked"))
    users.add_url_rule("/", "index", lambda: "hello")
    app.register_blueprint(users)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    assert codes(app, times=1, method="OPTIONS", headers=asked) == [200]
    assert codes(app, times=1) == [429]


def test_a_handler_of_the_blueprint_answers_refusals_in_it() -> None:
    app, limits = made()
    users = Blueprint("users", "asked")
    users.add_url_rule("/", "index", limits.limit("1/minute")(lambda: "hello"))
    users.register_error_handler(429, lambda _: ("slow down", 429))
    app.register_blueprint(users)
    ask(app)
    refused = ask(app)
    assert refused.text == "slow down"
    assert refused.headers["Retry-After"] == "60"
