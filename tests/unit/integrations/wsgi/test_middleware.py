"""The WSGI middleware: who is allowed, and the headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.responses import ResponseOptions
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.wsgi_caller import Answered, call, environ, hello, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.engine.request import Request


class DownStore(Store):
    """A store that is not there."""

    def run(self, operation: object) -> Any:
        raise StoreError("it is down")

    def close(self) -> None:
        pass


def limiting(app: WSGIApplication = hello, **options: Any) -> RateLimitMiddleware:
    given: Any = {"limits": "2/minute", "clock": ManualClock(100)} | options
    return RateLimitMiddleware(app, **given)


def test_so_many_pass_and_are_told_what_is_left() -> None:
    app = limiting()
    first, second, third = (call(app) for _ in range(3))
    assert first.headers == {
        "Content-Type": "text/plain",
        "X-RateLimit-Limit": "2",
        "X-RateLimit-Remaining": "1",
        "X-RateLimit-Reset": "130",
        "RateLimit-Policy": '"default";q=2;w=60',
        "RateLimit": '"default";r=1;t=30',
    }
    assert (first.body, second.headers["X-RateLimit-Remaining"]) == (b"hello", "0")
    assert third.status == "429 Too Many Requests"


def test_callers_are_told_apart_by_address() -> None:
    app = limiting(limits="1/minute")
    assert [call(app, peer=peer).code for peer in ("192.0.2.1", "192.0.2.2", "192.0.2.1")] == [
        200,
        200,
        429,
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("2001:db8::1", "2001:db8::ffff"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
    ids=["one /64", "one spelling", "mapped"],
)
def test_one_client_is_one_client_however_it_is_written(ours: str, theirs: str) -> None:
    app = limiting(limits="1/minute")
    assert (call(app, peer=ours).code, call(app, peer=theirs).code) == (200, 429)


def test_two_mapped_addresses_are_two_clients() -> None:
    app = limiting(limits="1/minute")
    peers = ("::ffff:192.0.2.1", "::ffff:192.0.2.2")
    assert [call(app, peer=peer).code for peer in peers] == [200, 200]


def test_nobody_is_believed_about_addresses_who_is_not_trusted() -> None:
    app = limiting(limits="1/minute")
    codes = [call(app, x_forwarded_for=f"192.0.2.{n}").code for n in range(2)]
    assert codes == [200, 429]


def test_a_trusted_proxy_is_believed_and_what_clients_add_is_not() -> None:
    app = limiting(limits="1/minute", trusted_proxies=["10.0.0.0/8"])

    def code(trail: str) -> int:
        return call(app, peer="10.0.0.1", x_forwarded_for=trail).code

    assert code("192.0.2.1") == 200
    assert code("192.0.2.2") == 200
    assert code("6.6.6.6, 192.0.2.1") == 429
    assert code("6.6.6.6,192.0.2.1, 10.0.0.2") == 429


def test_a_proxy_on_a_unix_socket_can_be_trusted() -> None:
    app = limiting(limits="1/minute", trusted_proxies=["127.0.0.1"])
    codes = [call(app, peer="", x_forwarded_for=f"192.0.2.{n}").code for n in (1, 2, 1)]
    assert codes == [200, 200, 429]


@pytest.mark.parametrize("no_key", [None, ""])
def test_who_has_no_key_is_counted_by_address(no_key: str | None) -> None:
    app = limiting(limits="1/minute", key=lambda _: no_key)
    assert [call(app, peer=peer).code for peer in ("192.0.2.1", "192.0.2.1", "192.0.2.2")] == [
        200,
        429,
        200,
    ]


def test_a_key_function_may_look_at_the_environ() -> None:
    app = limiting(limits="1/minute", key=lambda request: request.environ.get("REMOTE_USER"))
    made = [environ(peer=f"192.0.2.{n}") | {"REMOTE_USER": "ann"} for n in range(2)]
    assert [served(app, one).code for one in made] == [200, 429]


def test_an_error_of_a_key_function_is_the_apps_own() -> None:
    def key(request: Request) -> str:
        raise LookupError("no such user")

    with pytest.raises(LookupError):
        call(limiting(key=key))


def test_an_async_function_is_refused_when_the_middleware_is_made() -> None:
    async def key(request: Request) -> str:
        return "ann"

    with pytest.raises(UsageError, match="key is an async function"):
        limiting(key=key)


@pytest.mark.parametrize("option", ["key", "exempt_when"])
@pytest.mark.parametrize("limits", ["1/minute", None])
def test_so_is_one_of_a_gate_that_has_limits_or_not(option: str, limits: str | None) -> None:
    async def function(request: Request) -> bool:
        return True

    given: Any = {option: function, "limits": limits}
    with pytest.raises(UsageError, match=f"{option} is an async function, and this app is not"):
        RateLimitMiddleware(hello, RequestLimiter(**given))


def test_a_coroutine_from_a_plain_function_is_refused_when_it_is_met() -> None:
    async def whose() -> str:
        return "ann"

    with pytest.raises(UsageError, match="is async"):
        call(limiting(key=lambda _: whose()))


def test_an_exempt_path_of_a_mounted_app_is_meant_in_full() -> None:
    app = limiting(limits="1/minute", exempt=["/api/health"])
    mounted = {"SCRIPT_NAME": "/api"}
    assert [served(app, environ(path="/health") | mounted).code for _ in range(3)] == [200] * 3


def test_a_path_that_can_be_read_otherwise_is_not_exempt() -> None:
    app = limiting(limits="1/minute", exempt=["/static/**"])
    codes = [call(app, "GET", "/static/../login").code for _ in range(2)]
    assert codes == [200, 429]


def test_what_the_app_says_of_its_own_limits_stays() -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        lines = [("Content-Type", "text/plain"), ("RateLimit-Policy", '"own";q=9;w=9')]
        start_response("200 OK", [*lines, ("x-ratelimit-limit", "9")])
        return [b""]

    policies = [value for name, value in call(limiting(app)).lines if name == "RateLimit-Policy"]
    assert ", ".join(policies) == '"own";q=9;w=9, "default";q=2;w=60'
    answer = call(limiting(app))
    assert [value for name, value in answer.lines if name.lower() == "x-ratelimit-limit"] == ["2"]


def nested(outer: RequestLimiter, inner: RequestLimiter) -> Callable[..., Answered]:
    app = RateLimitMiddleware(RateLimitMiddleware(hello, inner), outer)
    return lambda *args, **options: call(app, *args, **options)


def test_one_inside_of_another_is_told_by_the_outer_one_once() -> None:
    clock = ManualClock(100)
    ask = nested(
        RequestLimiter(limits="9/minute", clock=clock),
        RequestLimiter(limits="5/m", name="in", clock=clock),
    )
    assert ask().headers["RateLimit-Policy"] == '"default";q=9;w=60, "in";q=5;w=60'


def test_what_the_inner_one_refuses_the_outer_one_gives_back() -> None:
    clock = ManualClock(100)
    outer = RequestLimiter(limits="3/minute", clock=clock)
    ask = nested(outer, RequestLimiter(limits="1/minute", name="in", clock=clock))
    assert [ask().code for _ in range(4)] == [200, 429, 429, 429]
    assert call(RateLimitMiddleware(hello, outer)).headers["X-RateLimit-Remaining"] == "1"


def test_the_refusal_of_the_inner_one_is_told_once() -> None:
    clock = ManualClock(100)
    ask = nested(
        RequestLimiter(limits="3/minute", clock=clock),
        RequestLimiter(limits="1/m", name="in", clock=clock),
    )
    ask()
    refused = ask()
    assert refused.headers["RateLimit-Policy"] == '"in";q=1;w=60'
    assert refused.headers["Retry-After"] == "60"


def test_the_same_gate_inside_and_outside_is_asked_once() -> None:
    limiter = RequestLimiter(limits="2/minute", clock=ManualClock(100))
    assert nested(limiter, limiter)().headers["X-RateLimit-Remaining"] == "1"


def test_a_gate_that_is_not_the_outermost_is_asked_once_too() -> None:
    clock = ManualClock(100)
    outer = RequestLimiter(limits="9/minute", clock=clock)
    inner = RequestLimiter(limits="2/minute", name="in", clock=clock)
    app: WSGIApplication = hello
    for limiter in (inner, inner, outer, inner, outer):
        app = RateLimitMiddleware(app, limiter)
    assert [call(app).code for _ in range(3)] == [200, 200, 429]


def test_a_status_that_has_no_name_has_a_reason_all_the_same() -> None:
    rules = "{version: 1, rules: [{id: a, key_by: ip, limit: 1/m, on_store_failure: fail_closed}]}"
    options = ResponseOptions(outage_status=529)
    app = RateLimitMiddleware(
        hello, policy=read_policy(rules), store=DownStore(), responses=options
    )
    assert call(app).status == "529 Refused"


def test_a_gate_and_options_do_not_go_together() -> None:
    with pytest.raises(OptionError, match="'limits' is an option of the limiter"):
        RateLimitMiddleware(hello, RequestLimiter(), limits="1/minute")
