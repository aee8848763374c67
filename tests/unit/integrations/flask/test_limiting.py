"""Limits of views and blueprints: one check for a stack, all or nothing."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask, g, request
from flask.views import MethodView, View

from headgate.errors import OptionError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.flask import RateLimits
from headgate.testing import ManualClock
from tests.support.flask_apps import CountingStore, ask, codes, left, made

if TYPE_CHECKING:
    from collections.abc import Callable


def login_required(view: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as others write them."""

    @functools.wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs) if request.args.get("who") else ("who?", 401)

    return wrapper


def test_stacked_limits_are_asked_once_all_or_nothing() -> None:
    store = CountingStore(clock=ManualClock(100))
    app, limits = made(store=store, clock=None)

    @app.get("/")
    @limits.limit("4/hour")
    @limits.limit("2/minute", name="burst")
    def index() -> str:
        return "hello"

    first = ask(app)
    assert store.asked == 1
    assert first.headers["RateLimit-Policy"] == '"burst";q=2;w=60, "index";q=4;w=3600'
    assert left(first) == {"burst": 1, "index": 3}
    assert codes(app, times=3) == [200, 429, 429]
    assert left(ask(app))["index"] == 2


def test_limits_without_names_get_different_ones() -> None:
    app, limits = made(limits="9/minute", name="index")

    @app.get("/")
    @limits.limit("3/minute")
    @limits.limit("5/minute")
    def index() -> str:
        return "hello"

    assert left(ask(app)) == {"index": 8, "index-2": 4, "index-2-2": 2}


def test_a_limit_above_another_decorator_counts_what_that_one_turns_away() -> None:
    app, limits = made()

    @app.get("/")
    @limits.limit("3/minute")
    @login_required
    @limits.limit("1/minute")
    def index() -> str:
        return "hello"

    assert codes(app, times=4) == [401, 401, 401, 429]
    app, limits = made()
    app.add_url_rule(
        "/", "index", limits.limit("3/m")(login_required(limits.limit("1/m")(lambda: "hello")))
    )
    assert codes(app, "/?who=ann", times=2) == [200, 429]
    assert codes(app, times=3) == [401, 401, 429]


def test_the_same_view_under_two_paths_has_one_counter() -> None:
    app, limits = made()

    @app.get("/")
    @app.get("/index")
    @limits.limit("1/minute")
    def index() -> str:
        return "hello"

    assert [ask(app, path).status_code for path in ("/", "/index")] == [200, 429]


def test_views_made_by_one_function_are_counted_apart() -> None:
    app, limits = made()

    def add(name: str) -> None:
        @limits.limit("1/minute")
        def view() -> str:
            return name

        app.add_url_rule(f"/{name}", name, view)

    add("a")
    add("b")
    assert [ask(app, path).status_code for path in ("/a", "/b", "/a")] == [200, 200, 429]


def test_a_limited_function_that_several_views_call_is_counted_once() -> None:
    app, limits = made()

    @limits.limit("1/minute")
    def send_mail() -> str:
        return "sent"

    app.add_url_rule("/a", "a", lambda: f"a: {send_mail()}")
    app.add_url_rule("/b", "b", lambda: f"b: {send_mail()}")
    assert [ask(app, path).status_code for path in ("/a", "/b")] == [200, 429]


def test_limiting_a_limited_view_further_leaves_it_as_it_was() -> None:
    app, limits = made()
    loose = limits.limit("3/minute")(lambda: "hello")
    tight = limits.limit("1/minute")(loose)
    app.add_url_rule("/loose", "loose", loose)
    app.add_url_rule("/tight", "tight", tight)
    assert codes(app, "/loose", times=4) == [200, 200, 200, 429]
    assert codes(app, "/tight", times=2) == [200, 429]


def test_keys_costs_and_limits_are_functions_of_flasks_request() -> None:
    app, limits = made()

    @app.get("/<user>")
    @limits.limit(
        lambda asked: None if asked.args.get("tier") == "paid" else "3/minute",
        key=lambda asked: (asked.view_args or {})["user"],
        cost=lambda asked: int(asked.args.get("cost", "1")),
    )
    def index(user: str) -> str:
        return user

    assert codes(app, "/ann?cost=2", times=2) == [200, 429]
    assert codes(app, "/ann", times=2) == [200, 429]
    assert codes(app, "/bob", times=1) == [200]
    assert codes(app, "/ann?tier=paid", times=3) == [200] * 3


def test_a_key_may_be_what_the_app_found_out_before() -> None:
    app, limits = made()

    @app.before_request
    def load() -> None:
        g.user = request.args.get("who")

    @app.get("/")
    @limits.limit("1/minute", key=lambda _: g.user)
    def index() -> str:
        return "hello"

    assert [ask(app, f"/?who={who}").status_code for who in "aba"] == [200, 200, 429]


@pytest.mark.parametrize("no_key", [None, ""])
def test_who_has_no_key_is_counted_by_address(no_key: str | None) -> None:
    app, limits = made()
    app.add_url_rule("/", "index", limits.limit("1/minute", key=lambda _: no_key)(lambda: "hello"))
    assert codes(app, times=2) == [200, 429]
    assert codes(app, times=2, peer="192.0.2.1") == [200, 429]


@pytest.mark.parametrize("option", ["key", "cost", "exempt_when"])
def test_async_functions_are_refused_when_decorating(option: str) -> None:
    async def function(asked: object) -> Any:
        return 1

    _, limits = made()
    given: Any = {option: function}
    with pytest.raises(UsageError, match=f"{option} is an async function, and this app is not"):
        limits.limit("1/minute", **given)


def test_views_keep_their_name_and_signature() -> None:
    _, limits = made()

    @limits.limit("1/minute")
    @limits.limit("1/hour")
    def show(user: int, *, page: int = 1) -> str:
        """Show it."""
        return f"{user} {page}"

    assert (show.__name__, show.__doc__) == ("show", "Show it.")
    assert list(inspect.signature(show).parameters) == ["user", "page"]


def test_outside_of_requests_a_function_is_as_it_was() -> None:
    app, limits = made()

    @limits.limit("1/minute")
    def double(number: int) -> int:
        return 2 * number

    assert [double(2) for _ in range(3)] == [4, 4, 4]
    with app.app_context():
        assert [double(2) for _ in range(3)] == [4, 4, 4]


def test_async_views_work() -> None:
    app, limits = made()

    @app.get("/<name>")
    @limits.limit("1/minute")
    async def index(name: str) -> str:
        return name

    assert ask(app, "/ann").text == "ann"
    assert ask(app, "/ann").status_code == 429


def test_class_based_views() -> None:
    app, limits = made()

    class Listed(View):
        decorators = [limits.limit("1/minute"), limits.limit("3/hour")]  # noqa: RUF012

        def dispatch_request(self) -> str:
            return "listed"

    class Other(MethodView):
        @limits.limit("1/minute")
        def get(self) -> str:
            return "got"

        def post(self) -> str:
            return "posted"

    app.add_url_rule("/a", view_func=Listed.as_view("a"))
    app.add_url_rule("/b", view_func=Listed.as_view("b"))
    app.add_url_rule("/c", view_func=Other.as_view("c"))
    first = ask(app, "/a")
    assert first.headers["RateLimit-Policy"] == '"a";q=1;w=60, "a-2";q=3;w=3600'
    assert codes(app, "/a", times=1) == [429]
    assert codes(app, "/b", times=2) == [200, 429]
    assert codes(app, "/c", times=2) == [200, 429]
    assert codes(app, "/c", times=2, method="POST") == [200, 200]


@pytest.mark.parametrize("is_for_blueprint", [True, False])
def test_a_preflight_that_reaches_a_view_is_a_call_like_any_other(is_for_blueprint: bool) -> None:
    app, limits = made()
    users = Blueprint("users", "asked")
    view = (lambda: "hello") if is_for_blueprint else limits.limit("2/minute")(lambda: "hello")
    users.add_url_rule("/", "index", view, methods=["OPTIONS"], provide_automatic_options=False)
    if is_for_blueprint:
        limits.limit("2/minute")(users)
    app.register_blueprint(users)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    assert codes(app, times=1, method="OPTIONS") == [200]
    assert codes(app, times=2, method="OPTIONS", headers=asked) == [200, 429]


def test_views_of_several_apps_use_the_limiter_of_the_app_that_serves_them() -> None:
    limits = RateLimits()
    view = limits.limit("1/minute")(lambda: "hello")
    apps = [Flask("a"), Flask("b")]
    for app in apps:
        limits.init_app(app, RequestLimiter(clock=ManualClock(100)))
        app.add_url_rule("/", "index", view)
    assert [codes(app, times=2) for app in apps] == [[200, 429]] * 2


def test_mistakes_are_told() -> None:
    _, limits = made()
    with pytest.raises(UsageError, match="Listed is a class of views: say decorators"):

        @limits.limit("1/minute")
        class Listed(View):
            pass

    with pytest.raises(UsageError, match="cannot limit 'view'"):
        limits.limit("1/minute")("view")
    with pytest.raises(OptionError, match="name 'a' is given twice"):
        limits.limit("1/m", name="a")(limits.limit("9/h", name="a")(lambda: "hello"))
    bare = Flask("bare")
    bare.testing = True
    bare.add_url_rule("/", "index", limits.limit("1/minute")(lambda: "hello"))
    with pytest.raises(
        UsageError, match=r"'bare' has views with limits .* limits\.init_app\(app\)"
    ):
        ask(bare)


def test_without_the_apps_wsgi_the_limit_holds_all_the_same() -> None:
    app, limits = made()
    app.add_url_rule("/", "index", limits.limit("1/minute")(lambda: "hello"))
    for code in (200, 429):
        with app.test_request_context("/"):
            assert app.full_dispatch_request().status_code == code
