"""`GET /rate_limit`: what a caller has left, and nothing is consumed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware, StatusApp
from headgate.integrations.rate_limit_status import status_body
from headgate.policy.loader import read_policy
from headgate.policy.model import Override
from headgate.runtime.drivers import drive as run_effects
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.asgi_connection import (
    CLIENT,
    Answering,
    drive,
    drive_all,
    exchange,
    http,
    websocket,
)

POLICY = read_policy(
    """
version: 1
rules:
  - {id: all, key_by: ip, limit: 10/hour fixed_window; 2/minute fixed_window}
  - id: login
    match: {endpoint: /login, method: POST}
    key_by: [ip, endpoint, method]
    limit: 5/hour
  - {id: each, match: {endpoint: /api/**}, key_by: [ip, endpoint], limit: 5/hour}
  - {id: hidden, key_by: ip, limit: 5/hour, headers: redacted}
  - {id: trial, key_by: ip, limit: 5/hour, mode: shadow}
  - {id: slots, key_by: ip, algorithm: concurrency, limit: 3, ttl: 1h}
"""
)


def shown(limiter: RequestLimiter, **options: Any) -> dict[str, dict[str, Any]]:
    body = json.loads(drive(StatusApp(limiter), http("/rate_limit", **options)).body)
    return {entry["name"]: entry for entry in body["limits"]}


def test_every_limit_of_the_caller_is_shown_and_looking_costs_nothing() -> None:
    limiter = RequestLimiter(policy=POLICY, limits="9/hour", clock=ManualClock(7_200))
    drive(RateLimitMiddleware(Answering(), limiter=limiter), http("/elsewhere"))
    for _ in range(3):
        entries = shown(limiter)

    assert list(entries) == ["all", "all/2", "login", "each", "slots", "default"]
    left = {name: entry.get("remaining") for name, entry in entries.items()}
    assert left == {"all": 9, "all/2": 1, "login": 5, "each": None, "slots": 3, "default": 8}
    assert entries["all"]["reset"] == 10_800
    assert entries["login"]["endpoints"] == ["/login"]
    assert entries["login"]["methods"] == ["POST"]
    assert "window" not in entries["slots"]


def test_the_counter_of_one_endpoint_is_found_from_elsewhere() -> None:
    limiter = RequestLimiter(policy=POLICY, clock=ManualClock(7_200))
    drive(RateLimitMiddleware(Answering(), limiter=limiter), http("/login", method="POST"))

    assert shown(limiter)["login"]["remaining"] == 4


def test_others_are_not_shown() -> None:
    limiter = RequestLimiter(limits="9/hour")
    drive(RateLimitMiddleware(Answering(), limiter=limiter))

    assert shown(limiter)["default"]["remaining"] == 8
    assert shown(limiter, client=("203.0.113.99", 1))["default"]["remaining"] == 9


def test_code_that_blocks_shows_the_same() -> None:
    limiter = RequestLimiter(policy=POLICY, limits="9/hour", clock=ManualClock(7_200))
    drive(RateLimitMiddleware(Answering(), limiter=limiter))
    page = status_body(limiter, Request(peer=CLIENT[0], path="/rate_limit"))
    blocking = run_effects(page)

    assert blocking == drive(StatusApp(limiter), http("/rate_limit")).body


def test_the_page_is_json_that_nobody_keeps() -> None:
    reply, head = drive_all(StatusApp(RequestLimiter(limits="9/hour")), http(), http(method="HEAD"))

    assert reply.headers == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "content-length": str(len(reply.body)),
    }
    assert head.headers == reply.headers
    assert head.body == b""


def test_other_methods_are_not_allowed() -> None:
    reply = drive(StatusApp(RequestLimiter(limits="9/hour")), http(method="POST"))

    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD"


def test_what_is_no_request_is_a_clear_error() -> None:
    with pytest.raises(RuntimeError, match="answers HTTP, not 'websocket'"):
        drive(StatusApp(RequestLimiter()), websocket())


def test_the_page_in_the_same_loop_as_requests_is_up_to_date() -> None:
    limiter = RequestLimiter(limits="9/hour")
    app = RateLimitMiddleware(Answering(), limiter=limiter)
    assert asyncio.run(_after_each(app, limiter)) == [8, 7, 6]


async def _after_each(app: Any, limiter: RequestLimiter) -> list[int]:
    found = []
    for _ in range(3):
        await exchange(app, http())
        reply = await exchange(StatusApp(limiter), http())
        found.append(json.loads(reply.body)["limits"][0]["remaining"])
    return found


def test_limits_in_shadow_are_not_shown() -> None:
    limiter = RequestLimiter(limits="5/hour", mode="shadow")
    shown = json.loads(run_effects(status_body(limiter, Request(peer="1.2.3.4"))))

    assert shown == {"limits": []}


def test_a_blocked_counter_shows_nothing_left_until_the_block_ends() -> None:
    until = 7_260 * SECOND
    overrides = (
        Override("all", f"ip={CLIENT[0]}", until, block=True),
        Override("slots", f"ip={CLIENT[0]}", until, extra=2),
    )
    clock = ManualClock(7_200)
    limiter = RequestLimiter(policy=replace(POLICY, overrides=overrides), clock=clock)
    entries = shown(limiter)
    for name in ("all", "all/2"):
        assert (entries[name]["remaining"], entries[name]["reset"]) == (0, 7_260)
    assert (entries["slots"]["quota"], entries["slots"]["remaining"]) == (5, 5)
    assert entries["login"]["remaining"] == 5
    clock.advance(60)
    assert shown(limiter)["all"]["remaining"] == 10
    assert shown(limiter)["slots"]["quota"] == 3
