"""The limits of a whole Flask app: who is asked, who is not, what refusals look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask, jsonify, request
from flask.views import MethodView, View
from werkzeug.exceptions import HTTPException, TooManyRequests
from werkzeug.middleware.proxy_fix import ProxyFix

from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.flask import RateLimits
from headgate.policy.loader import read_policy
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.flask_apps import ask, codes, left, made

if TYPE_CHECKING:
    from pathlib import Path

    from flask import Response

    from headgate.integrations import CompletedResponse


class DownStore(Store):
    """A store that is not there."""

    def run(self, operation: object) -> Any:
        raise StoreError("it is down")

    def close(self) -> None:
        pass


def with_index(**options: Any) -> Flask:
    app, _ = made(**options)
    app.add_url_rule("/", "index", lambda: "hello")
    return app


def test_a_handler_of_the_app_answers_with_our_headers() -> None:
    app = with_index(limits="1/minute")

    @app.errorhandler(429)
    def slow_down(error: TooManyRequests) -> tuple[Response, int]:
        return jsonify(said=error.description, wait=error.retry_after), 429

    ask(app)
    refused = ask(app)
    assert refused.json == {
        "said": "Too many requests: 1 per minute. Try again in 60 seconds.",
        "wait": 60,
    }
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["RateLimit"] == '"default";r=0;t=60'
    assert len(refused.headers.getlist("Retry-After")) == 1


def test_a_handler_of_all_http_errors_answers_too() -> None:
    app = with_index(limits="1/minute")

    @app.errorhandler(HTTPException)
    def as_text(error: HTTPException) -> Any:
        response = error.get_response()
        response.data = f"{error.code} {error.name}"
        response.content_type = "text/plain"
        return response

    ask(app)
    refused = ask(app)
    assert (refused.text, refused.content_type) == ("429 Too Many Requests", "text/plain")
    assert refused.headers["Retry-After"] == "60"


def test_no_200_says_retry_after_even_if_a_handler_makes_it_one() -> None:
    app = with_index(limits="1/minute")
    app.register_error_handler(429, lambda _: "never mind")
    ask(app)
    answer = ask(app)
    assert (answer.status_code, answer.text) == (200, "never mind")
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("is_handled", [True, False])
def test_the_outcome_is_the_one_that_was_sent(is_handled: bool) -> None:
    seen: list[CompletedResponse] = []

    def note(responded: CompletedResponse) -> bool:
        seen.append(responded)
        return True

    app, _ = made(limits="9/minute", charge_when=note)
    app.add_url_rule("/", "index", lambda: str(1 / 0))
    if is_handled:
        app.register_error_handler(ZeroDivisionError, lambda _: ("teapot", 418))
    assert ask(app).status_code == (418 if is_handled else 500)
    assert [one.status_code for one in seen] == [418 if is_handled else 500]


def test_an_error_that_is_let_through_ends_the_request() -> None:
    seen: list[CompletedResponse] = []

    def note(responded: CompletedResponse) -> bool:
        seen.append(responded)
        return True

    app, _ = made(limits="9/minute", charge_when=note)
    app.testing = True
    app.add_url_rule("/", "index", lambda: str(1 / 0))
    with pytest.raises(ZeroDivisionError):
        ask(app)
    assert isinstance(seen[0].error, ZeroDivisionError)
    assert seen[0].status_code == 500


def test_static_files_are_exempt_unless_they_are_to_be_limited(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a")
    for is_limited, expected in ((False, [200] * 3), (True, [200, 429, 429])):
        app = Flask("asked", static_folder=str(tmp_path), static_url_path="/static")
        RateLimits(app, limits="1/minute", limits_static=is_limited, clock=ManualClock(100))
        assert codes(app, "/static/a.css", times=3) == expected


def test_static_files_of_blueprints_are_too_and_views_of_that_name_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a")
    app, _ = made(limits="1/minute")
    files = Blueprint("files", "asked", static_folder=str(tmp_path), static_url_path="/f")
    named = Blueprint("named", "asked")
    named.add_url_rule("/named", "static", lambda: "a view")
    app.register_blueprint(files)
    app.register_blueprint(named)
    assert codes(app, "/f/a.css", times=3) == [200] * 3
    assert codes(app, "/named", times=2) == [200, 429]


def test_exempt_classes_of_views_and_blueprints() -> None:
    app, limits = made(limits="1/minute")

    @limits.exempt
    class Marked(MethodView):
        def get(self) -> str:
            return "marked"

    class Listed(View):
        decorators = [limits.exempt]  # noqa: RUF012 (as Flask's pages show it)

        def dispatch_request(self) -> str:
            return "listed"

    inner = Blueprint("inner", "asked", url_prefix="/inner")
    inner.add_url_rule("/", "index", lambda: "inner")
    outer = limits.exempt(Blueprint("outer", "asked", url_prefix="/outer"))
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    app.add_url_rule("/marked", view_func=Marked.as_view("marked"))
    app.add_url_rule("/listed", view_func=Listed.as_view("listed"))
    for path in ("/marked", "/listed", "/outer/inner/"):
        assert codes(app, path, times=3) == [200] * 3


def test_what_extends_an_exempt_class_is_not_exempt() -> None:
    app, limits = made(limits="1/minute")

    @limits.exempt
    class Marked(MethodView):
        def get(self) -> str:
            return "marked"

    class Extending(Marked):
        pass

    app.add_url_rule("/extending", view_func=Extending.as_view("extending"))
    assert codes(app, "/extending", times=2) == [200, 429]


@pytest.mark.parametrize("no_key", [None, ""])
def test_who_has_no_key_is_counted_by_address(no_key: str | None) -> None:
    app = with_index(limits="1/minute", key=lambda _: no_key)
    assert codes(app, times=2) == [200, 429]
    assert codes(app, times=1, peer="192.0.2.1") == [200]


@pytest.mark.parametrize("option", ["key", "exempt_when"])
@pytest.mark.parametrize("limits", ["1/minute", None])
def test_an_async_function_is_refused_when_the_app_is_made(option: str, limits: str | None) -> None:
    async def function(asked: object) -> str:
        return "ann"

    given: Any = {option: function, "limits": limits}
    with pytest.raises(UsageError, match=f"{option} is an async function"):
        made(**given)


def test_addresses_behind_a_trusted_proxy_and_behind_proxy_fix() -> None:
    trusting = with_index(limits="1/minute", trusted_proxies=["10.0.0.0/8"])
    fixed = with_index(limits="1/minute")
    fixed.wsgi_app = ProxyFix(fixed.wsgi_app)  # type: ignore[method-assign]
    for app in (trusting, fixed):
        sent = [
            ask(app, peer="10.0.0.1", headers={"X-Forwarded-For": trail}).status_code
            for trail in ("192.0.2.1", "192.0.2.2", "6.6.6.6, 192.0.2.1")
        ]
        assert sent == [200, 200, 429]


def test_rules_may_count_by_route() -> None:
    rules = "{version: 1, rules: [{id: a, key_by: [ip, endpoint], limit: 1/m}]}"
    app, _ = made(policy=read_policy(rules))
    app.add_url_rule("/users/<int:user>", "user", lambda user: f"{user}")
    assert [ask(app, f"/users/{n}").status_code for n in range(2)] == [200, 429]
    assert codes(app, "/nothing", times=2) == [404, 429]


def test_a_handler_for_503_answers_an_outage() -> None:
    rules = "{version: 1, rules: [{id: a, key_by: ip, limit: 1/m, on_store_failure: fail_closed}]}"
    app = with_index(policy=read_policy(rules), store=DownStore(), clock=None)
    app.register_error_handler(503, lambda _: ("back soon", 503))
    assert ask(app).text == "back soon"


def test_one_extension_for_several_apps_counts_each_apart() -> None:
    limits = RateLimits(limits="1/minute", clock=ManualClock(100))
    apps = [Flask("a"), Flask("b")]
    for app in apps:
        limits.init_app(app)
        app.add_url_rule("/", "index", lambda: "hello")
    assert [codes(app, times=2) for app in apps] == [[200, 429]] * 2
    assert limits.limiter(apps[0]) is not limits.limiter(apps[1])


def test_options_given_to_init_app_go_first() -> None:
    limits = RateLimits(limits="1/minute", clock=ManualClock(100))
    app = Flask("a")
    app.add_url_rule("/", "index", lambda: "hello")
    limits.init_app(app, limits="2/minute")
    assert codes(app, times=3) == [200, 200, 429]


def test_a_gate_can_be_shared() -> None:
    limiter = RequestLimiter(limits="2/minute", clock=ManualClock(100))
    first, second = Flask("a"), Flask("b")
    RateLimits(first, limiter)
    RateLimits(limiter=limiter).init_app(second)
    for app in (first, second):
        app.add_url_rule("/", "index", lambda: "hello")
    assert codes(first, times=1) + codes(second, times=2) == [200, 200, 429]


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(OptionError, match="'limits' is an option of the limiter"):
        RateLimits(limiter=RequestLimiter(), limits="1/minute")
    app, limits = made()
    with pytest.raises(UsageError, match="'asked' has its RateLimits already"):
        limits.init_app(app)


def test_the_page_of_limits_is_one_line_and_consumes_nothing() -> None:
    app, limits = made(limits="3/minute")
    app.add_url_rule("/", "index", lambda: "hello")
    app.add_url_rule("/rate_limit", view_func=limits.status)
    ask(app)
    pages = [ask(app, "/rate_limit") for _ in range(5)]
    assert pages[-1].json is not None
    assert pages[-1].json["limits"][0]["remaining"] == 2
    assert pages[-1].headers["Cache-Control"] == "no-store"
    assert ask(app, "/rate_limit", method="HEAD").data == b""
    refused = ask(app, "/rate_limit", method="DELETE")
    assert refused.status_code == 405
    assert "GET" in refused.headers["Allow"]


def test_key_functions_may_use_flask_itself() -> None:
    app = with_index(limits="1/minute", key=lambda _: request.args.get("who"))
    assert [ask(app, f"/?who={who}").status_code for who in "aba"] == [200, 200, 429]


def test_what_is_left_is_told_for_every_limit_of_the_gate() -> None:
    assert left(ask(with_index(limits="5/minute; 9/hour"))) == {"default": 4, "default/2": 8}
