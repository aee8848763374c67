"""What docs/migration.md says is right here: each trap as an app, and what it answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import flask
import pytest
from flask import Blueprint, Flask, Response, abort
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from headgate import RateLimiter
from headgate.errors import NotationError, StoreError
from headgate.integrations import RequestLimiter, by_address
from headgate.integrations.flask import RateLimits
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.stores import MemoryStore, Store
from headgate.testing import ManualClock
from tests.support.flask_apps import ask, codes, left, made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.operations import Operation

ORIGIN = {"Origin": "https://shop.test"}
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "GET"}


class Failing(Store):
    """A store that answers so many times, and is gone then."""

    def __init__(self, answers: int = 0) -> None:
        self.inner = MemoryStore()
        self.answers = answers

    def run(self, operation: Operation[Any]) -> Any:
        if self.answers == 0:
            raise StoreError("gone")
        self.answers -= 1
        return self.inner.run(operation)


def fine() -> str:
    return "fine"


def served(*texts: str, limiter: dict[str, Any] | None = None, **options: Any) -> Flask:
    """An app with a view at / that has the limits *texts*."""
    app, limits = made(**(limiter or {}))
    view = fine
    for text in texts:
        view = limits.limit(text, **options)(view)
    app.add_url_rule("/", view_func=view)
    return app


# ---- who is counted ---------------------------------------------------------------------------


@pytest.mark.parametrize("named", [None, ""])
def test_a_caller_without_a_key_is_counted_by_address(named: str | None) -> None:
    app = served("1/minute", key=lambda request: request.headers.get("X-User", named))

    assert codes(app, times=3) == [200, 429, 429]
    assert codes(app, times=1, peer="203.0.113.8") == [200]
    assert codes(app, times=2, headers={"X-User": "ann"}) == [200, 429]


def test_clients_behind_a_trusted_proxy_are_distinguished_and_others_ignored() -> None:
    app = served(limiter={"limits": "1/minute", "trusted_proxies": ["10.0.0.0/8"]})

    for address in ("198.51.100.1", "198.51.100.2"):
        headers = {"X-Forwarded-For": address}
        assert codes(app, times=2, peer="10.0.0.1", headers=headers) == [200, 429]
    forged = [{"X-Forwarded-For": f"198.51.100.{n}"} for n in range(3, 6)]
    assert [ask(app, headers=one).status_code for one in forged] == [200, 429, 429]


def test_a_network_of_ipv6_is_one_caller() -> None:
    app = served(limiter={"limits": "1/minute"})

    found = [ask(app, peer=f"2001:db8::{n}").status_code for n in range(1, 4)]
    assert found == [200, 429, 429]


# ---- when things break ------------------------------------------------------------------------


def test_an_outage_is_not_a_500() -> None:
    def limiter() -> dict[str, Any]:
        return {"limits": "9/minute", "store": Failing(), "clock": None}

    assert codes(served("2/minute", limiter=limiter()), times=3) == [200, 200, 429]
    assert codes(
        served("1/minute", limiter=limiter(), on_store_failure="fail_closed"), times=2
    ) == [
        503,
        503,
    ]
    assert codes(served("1/minute", limiter=limiter(), on_store_failure="local"), times=3) == [
        200,
        429,
        429,
    ]


def test_a_store_that_goes_after_the_check_does_not_spoil_the_response() -> None:
    app, limits = made(store=Failing(answers=1), clock=None)

    @app.get("/")
    @limits.limit("5/minute")
    def view() -> str:
        raise LookupError("the view's own")

    @app.errorhandler(LookupError)
    def handled(error: LookupError) -> tuple[str, int]:
        return str(error), 418

    answer = ask(app)
    assert (answer.status_code, answer.text) == (418, "the view's own")
    assert answer.headers["X-RateLimit-Remaining"] == "4"


def test_an_error_of_a_key_function_is_not_an_outage_and_allows_nothing() -> None:
    def wrong(request: flask.Request) -> str:
        raise ZeroDivisionError("mine")

    app = served("1/minute", key=wrong, on_store_failure="local")
    app.testing = True

    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="mine"):
            ask(app)


def test_a_limit_that_is_not_one_is_an_error_at_once() -> None:
    _, limits = made()

    with pytest.raises(NotationError, match="fortnight"):
        limits.limit("5/fortnight")
    with pytest.raises(NotationError, match="fortnight"):
        made(limits="5/fortnight")


def test_a_handler_writes_denials_and_the_headers_stay() -> None:
    app = served("1/minute", limiter={"limits": "100/minute"})

    @app.errorhandler(429)
    def slow_down(error: Any) -> tuple[dict[str, Any], int]:
        return {"wait": error.retry_after}, 429

    answer = [ask(app) for _ in range(2)][-1]
    assert (answer.status_code, answer.json) == (429, {"wait": 60})
    assert answer.headers["Retry-After"] == "60"


# ---- what passes through ----------------------------------------------------------------------


def test_a_stream_goes_out_piece_by_piece() -> None:
    app, limits = made(limits="5/minute")
    made_so_far = []

    @app.get("/")
    @limits.limit("5/minute", charge_when=lambda response: response.status_code == 200)
    def stream() -> Response:
        def pieces() -> Iterator[str]:
            for piece in ("one", "two"):
                made_so_far.append(piece)
                yield piece

        return Response(pieces())

    answer = ask(app, buffered=False)
    arriving = answer.iter_encoded()
    assert next(iter(arriving)) == b"one"
    assert made_so_far == ["one"]
    answer.close()


def test_a_mounted_app_does_not_escape_a_middleware_around_both() -> None:
    limiter = RequestLimiter(limits="3/minute", clock=ManualClock(100))
    outer, inner = Flask("outer"), Flask("inner")
    RateLimits(outer, limiter)
    outer.add_url_rule("/", view_func=fine)
    inner.add_url_rule("/page", view_func=fine)
    both = DispatcherMiddleware(outer, {"/sub": inner})
    client = Client(RateLimitMiddleware(both, limiter))

    asked = ("/", "/sub/page", "/sub/page", "/", "/sub/page")
    assert [client.get(path).status_code for path in asked] == [200, 200, 200, 429, 429]


# ---- what counts ------------------------------------------------------------------------------


def test_pages_that_are_not_there_count() -> None:
    app = served(limiter={"limits": "2/minute"})

    assert codes(app, "/nowhere", times=3) == [404, 404, 429]


def test_a_view_does_not_escape_by_the_name_of_its_endpoint() -> None:
    app, _ = made(limits="1/minute")
    shop = Blueprint("shop", __name__)
    shop.add_url_rule("/", "static", fine)
    app.register_blueprint(shop)

    assert codes(app, times=2) == [200, 429]


def test_what_a_view_denies_is_not_charged_to_the_app() -> None:
    app = served("1/hour", limiter={"limits": "4/minute"})
    app.add_url_rule("/other", "other", fine)

    assert codes(app, times=4) == [200, 429, 429, 429]
    assert left(ask(app, "/other")) == {"default": 2}


def test_what_the_minute_denies_does_not_use_up_the_hour() -> None:
    app = served("4/hour", "1/minute")

    assert codes(app, times=5) == [200, 429, 429, 429, 429]
    assert sorted(left(ask(app)).values()) == [0, 3]


def test_a_denial_costs_nothing() -> None:
    app = served("10/minute", cost=lambda request: int(request.headers["X-Cost"]))

    found = [ask(app, headers={"X-Cost": str(cost)}).status_code for cost in (6, 6, 4)]
    assert found == [200, 429, 200]


def test_guesses_at_once_do_not_slip_through() -> None:
    app, limits = made()
    inside = threading.Barrier(3)

    @app.post("/login")
    @limits.limit("3/minute", charge_when=lambda response: response.status_code == 401)
    def login() -> str:
        inside.wait(10)  # none fails before all that are allowed are in
        abort(401)

    found: list[int] = []

    def guess() -> None:
        found.append(ask(app, "/login", method="POST").status_code)

    guesses = [threading.Thread(target=guess) for _ in range(10)]
    for one in guesses:
        one.start()
    for one in guesses:
        one.join()

    assert sorted(found) == [401] * 3 + [429] * 7


def test_what_does_not_count_is_given_back() -> None:
    app = served("1/minute", charge_when=lambda response: response.status_code == 401)

    assert codes(app, times=5) == [200] * 5


def test_preflights_use_up_nothing_and_do_not_fail_when_it_is_used_up() -> None:
    app = served("2/minute", limiter={"limits": "2/minute"})

    assert codes(app, times=1, method="OPTIONS", headers=PREFLIGHT) == [200]
    assert codes(app, times=3) == [200, 200, 429]
    assert codes(app, times=1, method="OPTIONS", headers=PREFLIGHT) == [200]


def test_head_counts_like_get() -> None:
    app = served("2/minute", exempt_when=lambda request: request.method not in {"GET", "HEAD"})

    found = [ask(app, method=method).status_code for method in ("GET", "HEAD", "HEAD", "GET")]
    assert found == [200, 200, 429, 429]


def test_each_view_can_have_a_counter_for_the_limit_of_the_app() -> None:
    app = served(limiter={"limits": "1/minute", "key": lambda _: (flask.request.endpoint, None)})
    app.add_url_rule("/other", "other", fine)

    assert codes(app, times=2) == [200, 429]
    assert codes(app, "/other", times=2) == [200, 429]
    assert codes(app, times=1, peer="203.0.113.8") == [200]


def test_methods_can_be_counted_apart() -> None:
    app, limits = made()
    by_method = limits.limit(
        "1/minute", key=lambda request: (request.method.replace("HEAD", "GET"), None)
    )
    app.add_url_rule("/", view_func=by_method(fine), methods=["GET", "POST"])

    asked = ("GET", "POST", "HEAD", "POST")
    assert [ask(app, method=one).status_code for one in asked] == [200, 200, 429, 429]


def test_an_exempt_view_keeps_its_own_limit_alone() -> None:
    app, limits = made(limits="1/minute")
    app.add_url_rule("/", view_func=limits.exempt(limits.limit("2/minute")(fine)))

    assert codes(app, times=3) == [200, 200, 429]


# ---- headers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["2/minute", "2/minute fixed_window", "2/minute sliding_window_log"]
)
def test_only_denials_have_retry_after_and_all_figures_are_whole(text: str) -> None:
    app = served(text)
    answers = [ask(app) for _ in range(3)]

    assert [one.status_code for one in answers] == [200, 200, 429]
    assert ["Retry-After" in one.headers for one in answers] == [False, False, True]
    assert answers[-1].headers["Retry-After"].isdigit()
    assert all(one.headers["X-RateLimit-Reset"].isdigit() for one in answers)


def test_a_header_of_the_views_own_is_not_there_twice() -> None:
    app, limits = made()

    @app.get("/")
    @limits.limit("2/minute")
    def view() -> Response:
        return Response("fine", headers={"X-RateLimit-Limit": "7"})

    assert ask(app).headers.getlist("X-RateLimit-Limit") == ["2"]


def test_scripts_of_other_origins_can_read_the_headers() -> None:
    app = served("1/minute")

    for status in (200, 429):
        answer = ask(app, headers=ORIGIN)
        exposed = answer.headers["Access-Control-Expose-Headers"].lower().split(", ")
        assert answer.status_code == status
        assert "x-ratelimit-remaining" in exposed
        assert ("retry-after" in exposed) is (status == 429)


# ---- during the move --------------------------------------------------------------------------


def test_a_limit_in_shadow_mode_counts_and_denies_nothing() -> None:
    app = served("1/minute", mode="shadow")
    would_refuse = []

    @app.after_request
    def note(response: Response) -> Response:
        grant = flask.request.environ["headgate"].results[-1]
        would_refuse.append(bool(grant.verdict.would_deny))
        return response

    assert codes(app, times=3) == [200, 200, 200]
    assert would_refuse == [False, True, True]


def test_a_limit_that_is_off_does_nothing() -> None:
    assert codes(served("1/minute", mode="off"), times=3) == [200, 200, 200]


def test_a_view_can_see_what_is_left() -> None:
    app, limits = made(limits="9/minute")

    @app.get("/")
    @limits.limit("5/minute", name="searches")
    def view() -> dict[str, int]:
        shown = flask.request.environ["headgate"].rule_answers
        return {one.name: one.decision.remaining for one in shown}

    assert ask(app).json == {"default": 8, "searches": 4}


def test_a_header_of_another_proxy_is_believed_if_it_is_named() -> None:
    key = by_address(trusted_proxies=["10.0.0.0/8"], header="cf-connecting-ip")
    app = served("1/minute", limiter={"key": key})

    for address in ("198.51.100.1", "198.51.100.2"):
        headers = {"CF-Connecting-IP": address}
        assert codes(app, times=2, peer="10.0.0.1", headers=headers) == [200, 429]
    forged = [{"CF-Connecting-IP": f"198.51.100.{n}"} for n in range(3, 6)]
    assert [ask(app, headers=one).status_code for one in forged] == [200, 429, 429]


def test_part_of_a_view_can_be_limited_by_itself() -> None:
    searches = RateLimiter("1/minute", clock=ManualClock(100))
    app, _ = made()

    @app.get("/")
    def view() -> str:
        return "found" if searches.hit(flask.request.remote_addr or "") else "cached"

    assert [ask(app).text for _ in range(2)] == ["found", "cached"]
