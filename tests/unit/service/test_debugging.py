"""The debug header over HTTP and RLS, and the tokens of the admin API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headgate.policy.envoy_config.attributes import DEBUG, GATEWAY_DOMAIN
from headgate.responses.debug import debug_token
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support import envoy_messages
from tests.support.admin_api import READER, Desk, attended
from tests.support.http_app import START, Answer, FakeStore, app_of, ask
from tests.support.rls_client import NOON, Asker, desc, headers_of, request

OURS = b"a secret of the service"


def token(secret: bytes = OURS, at: float = START) -> str:
    return debug_token(secret, now_ns=int(at) * SECOND, ttl_s=60)[0]


@pytest.mark.parametrize(("path", "count"), [("/v1/authorize/api/x", 4), ("/v1/check", 4)])
def test_over_http(path: str, count: int) -> None:
    app = app_of()
    lines = [("headgate-debug", token()), ("content-type", "application/json")]
    body = b'{"path": "/api/x", "ip": "127.0.0.1"}' if path == "/v1/check" else b""
    method = "POST" if body else "GET"
    answers = [ask(app, method, path, lines, body) for _ in range(count)]
    told = [answer.headers["headgate-decision"] for answer in answers]
    assert ["allowed=?1" in one for one in told] == [True, True, True, False]
    assert answers[-1].status == 429
    assert told[0].startswith('"per-ip";allowed=?1;mode=enforce;key="ip=~')
    assert ';counter="8=headgate=per-ip";' in told[0]
    others = [("headgate-debug", token(b"other")), *lines[1:]]
    assert "headgate-decision" not in ask(app, method, path, others, body).headers
    assert "headgate-decision" not in ask(app, method, path, lines[1:], body).headers


def test_the_gateway_passes_it_on() -> None:
    policy = "version: 1\nrules: [{id: per-key, key_by: api_key, limit: 1/minute}]\n"
    clock = ManualClock(NOON)
    asker = Asker(policy, clock=clock)

    def told(given: str) -> tuple[int, str | None]:
        entries = ((DEBUG, given), "method=GET", "path=/", "x-api-key=ada")
        answer = asker.calls.should_rate_limit(request(GATEWAY_DOMAIN, desc(*entries)))
        if not isinstance(answer, bytes):
            answer = asyncio.run(_bytes_of(answer))
        read = envoy_messages.service.RateLimitResponse.FromString(answer)
        line = headers_of(read).get("headgate-decision")
        caching = [
            one.value for one in read.response_headers_to_add if one.key.lower() == "cache-control"
        ]
        is_refused = read.overall_code == envoy_messages.service.RateLimitResponse.OVER_LIMIT
        assert caching == (["no-store"] if line or is_refused else [])
        return int(read.overall_code), line

    good = token(b"secret", NOON)
    code, line = told(good)
    assert line is not None
    assert line.startswith('"per-key";allowed=?1;mode=enforce;key="api_key=~')
    refused, line = told(good)
    assert refused != code
    assert line is not None
    assert '"per-key";allowed=?0' in line
    assert told("1.aa")[1] is None
    clock.advance(61)
    assert told(good)[1] is None


async def _bytes_of(answer: object) -> bytes:
    return await answer  # type: ignore[misc, no-any-return]  # it is awaitable, as `calls` says


def test_the_admin_api_makes_tokens() -> None:
    async def body(desk: Desk) -> None:
        made = await desk.ask("POST /debug-tokens", {"ttl": 60})
        assert made["header"] == "Headgate-Debug"
        assert made["token"].startswith(f"{made['expires']}.")
        assert any(event.what.startswith("create a debug token") for event in desk.audit.events)
        for wrong in ({"ttl": 0}, {"ttl": "1h"}, {"ttl": True}, {"for": 5}):
            status, _ = await desk.refusal("POST /debug-tokens", wrong)
            assert status in (400, 422)
        desk.token = READER
        assert (await desk.refusal("POST /debug-tokens", {}))[0] == 403

    attended(body)


def told_in(answer: Answer) -> list[str]:
    """The items of the header."""
    return answer.headers["headgate-decision"].split(", ")


def asked_with(token_: str, path: str = "/api/x", **more: object) -> tuple[list[Any], bytes]:
    lines = [("headgate-debug", token_), ("content-type", "application/json")]
    return lines, json.dumps({"path": path, "ip": "127.0.0.1", **more}).encode()


def test_keys_are_hashed_though_the_dashboard_has_them_clear() -> None:
    lines, body = asked_with(token())
    (told,) = told_in(ask(app_of(show_key=str), "POST", "/v1/check", lines, body))
    assert ';key="ip=~' in told


def test_reservations_tell_it_too() -> None:
    app = app_of()
    lines, body = asked_with(token(), cost=2, ttl=60)
    made, refused = (ask(app, "POST", "/v1/reservations", lines, body) for _ in range(2))
    assert (made.status, refused.status) == (201, 429)
    assert ";used=2;remaining=1;cost=2;" in told_in(made)[0]
    assert ";allowed=?0;" in told_in(refused)[0]
    assert made.headers["cache-control"] == "no-store"


def test_nobody_keeps_what_a_gateway_is_told() -> None:
    app = app_of()
    debugged = ask(app, "GET", "/v1/authorize/api/x", [("headgate-debug", token())])
    assert debugged.headers["cache-control"] == "no-store"
    assert "cache-control" not in ask(app, "GET", "/v1/authorize/api/x").headers


def test_an_outage_is_told_as_one() -> None:
    policy = """
version: 1
rules:
  - {id: open, key_by: ip, limit: 3/minute, on_store_failure: fail_open}
  - {id: closed, match: {endpoint: /closed}, key_by: ip, limit: 3/minute, on_store_failure: fail_closed}
"""  # noqa: E501
    store = FakeStore()
    app = app_of(policy, store=store)
    store.is_gone = True
    lines, body = asked_with(token(), "/")
    (told,) = told_in(ask(app, "POST", "/v1/check", lines, body))
    assert '"open";allowed=?1;' in told
    assert ";source=store" not in told
    lines, body = asked_with(token(), "/closed")
    answer = ask(app, "POST", "/v1/check", lines, body)
    assert answer.status == 503
    (told,) = [one for one in told_in(answer) if one.startswith('"closed"')]
    assert ";allowed=?0;mode=enforce;" in told
    assert ";source=fail_closed;" in told
    assert "remaining" not in told


def test_who_is_blocked_hears_that() -> None:
    policy = """
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 3/minute}
  - {id: other, key_by: ip, limit: 9/minute}
overrides:
  - {rule: per-ip, key: ip=127.0.0.1, block: true, until: 2100-01-01T00:00:00Z}
"""
    lines, body = asked_with(token())
    (told,) = told_in(ask(app_of(policy), "POST", "/v1/check", lines, body))
    assert told.startswith('"per-ip";allowed=?0;')
    assert ";source=override;" in told
    assert "used" not in told


def test_a_repeated_request_hears_that() -> None:
    policy = "version: 1\nrules: [{id: once, key_by: ip, limit: 3/minute, idempotency: true}]\n"
    app = app_of(policy)
    lines, body = asked_with(token(), headers={"idempotency-key": '"k"'})
    first, again = (told_in(ask(app, "POST", "/v1/check", lines, body))[0] for _ in range(2))
    assert ";source=store;" in first
    assert again.startswith('"once";allowed=?1;mode=enforce;key="ip=~')
    assert ";cost=0;source=replay;" in again
