"""A shedder before an app: what it denies is checked no further, in every kind of middleware."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headgate.errors import OptionError
from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.overload import LoadShedder
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.slow_apps import App, Client
from tests.support.wsgi_caller import call, hello

PROBLEM = "application/problem+json"
RULES = """
version: 1
priority:
  - {class: critical, match: {endpoint: /pay/**}}
  - {class: sheddable, match: {endpoint: /export/**}}
rules:
  - {id: all, key_by: ip, limit: 3/minute}
"""


def shedding(level: int) -> LoadShedder:
    """One that has come so far, and stays there."""
    shedder = LoadShedder(rise=1, fall=10)
    for second in range(level + 1):
        shedder.observe(1, now_ns=second * SECOND)
    assert shedder.level == level
    return shedder


def asked(*paths: str, **options: Any) -> list[tuple[int, dict[str, str], bytes]]:
    app = RateLimitMiddleware(App(0), **({"clock": ManualClock(1_000)} | options))

    async def main() -> list[Any]:
        return [await Client(app).ask(path, accept=PROBLEM) for path in paths]

    return asyncio.run(main())


def test_what_matters_least_is_refused_first_by_the_classes_of_the_policy() -> None:
    paths = ("/export/1", "/x", "/pay/1")
    for level, expected in ((1, [503, 200, 200]), (2, [503, 503, 200])):
        answers = asked(*paths, policy=read_policy(RULES), shedder=shedding(level))
        assert [status for status, _, _ in answers] == expected


def test_who_is_shed_is_told_that_capacity_is_short_and_when_to_come_back() -> None:
    ((status, headers, body),) = asked("/export/1", policy=read_policy(RULES), shedder=shedding(2))
    assert status == 503
    assert 10 <= int(headers["retry-after"]) <= 15, "so long the level takes to fall by one"
    assert "ratelimit" not in headers
    shown = json.loads(body)
    assert shown["type"].endswith("#temporary-reduced-capacity")
    assert shown["violated-policies"] == ["load-shedding"]


def test_what_is_shed_is_not_charged() -> None:
    shedder = shedding(1)
    answers = asked(*["/export/1"] * 9, *["/x"] * 4, policy=read_policy(RULES), shedder=shedder)
    assert [status for status, _, _ in answers] == [503] * 9 + [200] * 3 + [429]


def test_a_shedder_needs_neither_a_policy_nor_limits() -> None:
    assert asked("/x", shedder=shedding(1))[0][0] == 200
    assert asked("/x", shedder=shedding(2))[0][0] == 503
    assert asked("/x", limits="1/s", shedder=shedding(2))[0][0] == 503, "not the quick way"


def test_what_is_exempt_is_never_shed() -> None:
    assert asked("/health", exempt=["/health"], shedder=shedding(2))[0][0] == 200
    function = {"exempt_when": lambda request: request.path == "/health"}
    assert asked("/health", **function, shedder=shedding(2))[0][0] == 200


def test_apps_that_block_shed_too() -> None:
    app = WsgiMiddleware(hello, policy=read_policy(RULES), shedder=shedding(1))
    assert [call(app, "GET", path).code for path in ("/export/1", "/x")] == [503, 200]


def test_only_a_shedder_is_one() -> None:
    with pytest.raises(OptionError, match="expected a LoadShedder"):
        RequestLimiter(shedder=lambda: 1.0)  # type: ignore[arg-type]  # on purpose
