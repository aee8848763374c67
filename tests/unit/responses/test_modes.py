"""The header modes of a rule: what each tells, in every response that Headgate writes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from headgate.decision import HeaderMode
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.policy.loader import read_policy
from headgate.responses import GrpcStatus, grpc_status, queue_denial, response_for
from headgate.testing import ManualClock
from tests.support.asgi_connection import Answering, drive_all, http
from tests.support.decisions import MS, NOW, answer, body_for, decided, outage, refused, told
from tests.support.http_app import app_of, ask
from tests.support.rls_client import NOON, OVER, Asker, desc, headers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.responses import RuleAnswer

MODES: tuple[HeaderMode, ...] = get_args(HeaderMode)
NEUTRAL = {"error": "rate_limit_exceeded", "message": "Too many requests. Try again later."}
RATE = {
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
}


def named(message: str) -> dict[str, Any]:
    return {
        "error": "rate_limit_exceeded",
        "message": message,
        "limit": "secret",
        "retry_after_ms": 3_600_000,
        "retry_after": 3_600,
    }


@dataclass(frozen=True)
class Tells:
    """The headers of an allowed and of a denied request, and the body of the latter."""

    allowed: set[str]
    denied: set[str]
    body: dict[str, Any]


TELLS: dict[HeaderMode, Tells] = {
    "on": Tells(
        RATE,
        RATE | {"retry-after"},
        named("Too many requests: 1 per hour. Try again in 60 minutes."),
    ),
    "brief": Tells(set(), {"retry-after"}, named("Too many requests. Try again in 60 minutes.")),
    "off": Tells(set(), {"retry-after"}, NEUTRAL),
    "redacted": Tells(set(), set(), NEUTRAL),
}


def policy(mode: HeaderMode, key: str = "ip") -> str:
    rule = f"{{id: secret, key_by: '{key}', limit: 1/hour fixed_window, headers: '{mode}'}}"
    return f"version: 1\nrules: [{rule}]"


def ours(lines: dict[str, str]) -> set[str]:
    return {name for name in map(str.lower, lines) if name == "retry-after" or "ratelimit" in name}


def of_asgi(mode: HeaderMode) -> Tells:
    rules = read_policy(policy(mode))
    app = RateLimitMiddleware(Answering(), policy=rules, clock=ManualClock(NOON))
    first, second = drive_all(app, http("/"), http("/"))
    assert second.status == 429
    return Tells(ours(first.headers), ours(second.headers), json.loads(second.body))


def of_wsgi(mode: HeaderMode) -> Tells:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    started: list[tuple[str, dict[str, str]]] = []

    def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
        started.append((status, dict(headers)))

    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7"}
    limited = WsgiMiddleware(app, policy=read_policy(policy(mode)), clock=ManualClock(NOON))
    bodies = [b"".join(limited(dict(environ), start)) for _ in range(2)]
    (_, first), (status, second) = started
    assert status.startswith("429 ")
    return Tells(ours(first), ours(second), json.loads(bodies[1]))


def of_http(mode: HeaderMode) -> Tells:
    app = app_of(policy(mode), clock=ManualClock(NOON))
    first, second = [ask(app, "GET", "/v1/authorize/a") for _ in range(2)]
    assert second.status == 429
    return Tells(ours(first.headers), ours(second.headers), second.json)


def of_rls(mode: HeaderMode) -> Tells:
    asker = Asker(policy(mode, "attribute:u"))
    first, second = [asker.ask("edge", desc("u=ada")) for _ in range(2)]
    assert second.overall_code == OVER
    for one in (first, second):
        assert one.statuses[0].HasField("current_limit") == (mode == "on")
        assert one.statuses[0].HasField("duration_until_reset") == (mode == "on")
    return Tells(ours(headers_of(first)), ours(headers_of(second)), json.loads(second.raw_body))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("surface", [of_asgi, of_wsgi, of_http, of_rls])
def test_every_surface_tells_what_the_mode_says(
    surface: Callable[[HeaderMode], Tells], mode: HeaderMode
) -> None:
    assert surface(mode) == TELLS[mode]


PUSHBACKS: dict[HeaderMode, GrpcStatus] = {
    "on": GrpcStatus(8, "Too many requests: 100 per minute. Try again in 23 seconds.", 22_400),
    "brief": GrpcStatus(8, "Too many requests. Try again in 23 seconds.", 22_400),
    "off": GrpcStatus(8, "Too many requests. Try again later.", 22_400),
    "redacted": GrpcStatus(8, "Too many requests. Try again later."),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_grpc_status_tells_what_the_mode_says(mode: HeaderMode) -> None:
    assert grpc_status(answer(told(refused(), headers=mode))) == PUSHBACKS[mode]


@pytest.mark.parametrize("mode", MODES)
def test_problem_details_name_the_rule_where_the_mode_does(mode: HeaderMode) -> None:
    found = json.loads(body_for(answer(told(refused(), headers=mode)), problem=True)[1])
    if mode in ("on", "brief"):
        assert (found["violated-policies"], found["limit"]) == (["per-user"], "per-user")
    else:
        assert found == {
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too many requests",
            "status": 429,
            "detail": "Too many requests. Try again later.",
        }


@pytest.mark.parametrize(("mode", "waits"), [("off", ["Retry-After"]), ("redacted", [])])
@pytest.mark.parametrize(
    ("denied", "error", "title"),
    [
        (told(outage()), "temporarily_unavailable", "Temporarily unavailable"),
        (queue_denial("turns", 2_500 * MS), "temporarily_overloaded", "The service is busy"),
        (told(refused(source="override")), "rate_limit_exceeded", "Too many requests"),
    ],
)
def test_a_hidden_rule_tells_the_kind_of_denial_alone(
    mode: HeaderMode, waits: list[str], denied: RuleAnswer, error: str, title: str
) -> None:
    made = response_for(answer(replace(denied, headers=mode)), now_ns=NOW)
    assert [name for name, _ in made.headers] == [*waits, "Content-Type", "Cache-Control"]
    assert json.loads(made.body) == {"error": error, "message": f"{title}. Try again later."}


def test_a_brief_rule_that_never_fits_says_so_without_its_limit() -> None:
    found = json.loads(
        body_for(answer(told(decided(retry_ms=None), headers="brief")), problem=False)[1]
    )
    assert found == {
        "error": "rate_limit_exceeded",
        "message": "This request is more than its limit allows. Waiting does not help.",
        "limit": "per-user",
    }
