"""The limiter of an app: its options, its store, its end."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.errors import HeadgateError, OptionError
from headgate.integrations import RequestContext, RequestLimiter, RouteLimit
from headgate.integrations.request_limiter import limiter_of
from headgate.integrations.route_limit import LimitOptions
from headgate.policy.loader import read_policy
from headgate.policy.model import Override
from headgate.runtime.drivers import adrive, drive
from headgate.stores import MemoryStore
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import Waiting

POLICY = read_policy("version: 1\nrules:\n  - {id: rule, key_by: ip, limit: 5/hour}")
ASKED = Request(peer="1.2.3.4")


def test_blocking_and_async_parts_of_an_app_share_one_memory_store() -> None:
    limiter = RequestLimiter(limits="4/hour", clock=ManualClock(100))

    async def ask() -> bool:
        return await adrive(RequestContext(limiter, ASKED).begin(limiter, limiter.plan(ASKED)))

    granted = []
    for _ in range(3):
        granted.append(drive(RequestContext(limiter, ASKED).begin(limiter, limiter.plan(ASKED))))
        granted.append(asyncio.run(ask()))

    assert granted == [True] * 4 + [False] * 2


@pytest.mark.parametrize("store", ["memory://", "MEMORY://?max_keys=9", MemoryStore()])
def test_a_memory_store_serves_both_kinds(store: Any) -> None:
    limiter = RequestLimiter(limits="1/hour", store=store)

    assert limiter.engine.store is limiter.engine.store


class Closing(MemoryStore):
    closed = 0

    def close(self) -> None:
        self.closed += 1


class AsyncClosing(Waiting):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def test_closing_gives_back_what_was_opened_once() -> None:
    blocking, looped = Closing(), AsyncClosing()
    one, other = RequestLimiter(store=blocking), RequestLimiter(store=looped)
    one.close()
    asyncio.run(other.aclose())
    assert (blocking.closed, looped.closed) == (0, 0)

    _ = one.engine, other.engine
    for _ in range(2):
        one.close()
        asyncio.run(other.aclose())

    assert (blocking.closed, looped.closed) == (1, 1)


def test_a_limiter_that_was_closed_goes_on_with_what_it_had_counted() -> None:
    limiter = RequestLimiter(limits="2/hour", clock=ManualClock(100))
    granted = []
    for _ in range(3):
        granted.append(drive(RequestContext(limiter, ASKED).begin(limiter, limiter.plan(ASKED))))
        limiter.close()

    assert granted == [True, True, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": 5}, "policy is 5; expected a path or a Policy"),
        ({"policy": POLICY, "trusted_proxies": ["10.0.0.0/8"]}, "a policy says itself"),
        ({"trusted_proxies": ["10.0.0"]}, "trusted_proxies: '10.0.0' is no address"),
        ({"trusted_proxies": "10.0.0.0/8"}, "trusted_proxies is .* expected a list"),
        ({"exempt": "/health"}, "exempt is '/health'; expected a list"),
        ({"exempt_when": "/health"}, "exempt_when is '/health'; expected a function"),
        ({"key": "user"}, "key is 'user'; expected a function"),
        ({"charge_when": lambda _: True}, "charge_when is about limits"),
        ({"policy": POLICY, "cost": 5}, "cost is about limits"),
        ({"limits": "5/hour", "name": "a b"}, "name is 'a b'; expected"),
        ({"limits": "5/hour", "charge_when": 401}, "charge_when is 401; expected"),
    ],
)
def test_wrong_options_are_clear_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        RequestLimiter(**options)


def test_a_policy_file_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(HeadgateError, match="nowhere"):
        RequestLimiter(policy="/nowhere.yaml")


def test_a_limiter_and_options_for_one_are_a_clear_error() -> None:
    with pytest.raises(OptionError, match="'limits' is an option of the limiter"):
        limiter_of(RequestLimiter(), {"limits": "5/hour"})


@pytest.mark.parametrize("wrong", ["100/minute", 5, RequestLimiter])
def test_what_is_no_limiter_is_a_clear_error(wrong: Any) -> None:
    with pytest.raises(OptionError, match="expected a RequestLimiter"):
        limiter_of(wrong, {})


def test_a_limiter_that_asks_nothing_lets_all_pass_and_says_nothing() -> None:
    limiter = RequestLimiter()
    context = RequestContext(limiter, ASKED)

    assert drive(context.begin(limiter, limiter.plan(ASKED)))
    assert context.header_lines(200) == []


def test_routes_make_a_difference_only_if_a_rule_counts_by_them() -> None:
    by_endpoint = read_policy("version: 1\nrules:\n  - {id: a, key_by: endpoint, limit: 5/hour}")

    assert not RequestLimiter(limits="5/hour").counts_endpoints
    assert not RequestLimiter(policy=POLICY).counts_endpoints
    assert RequestLimiter(policy=by_endpoint).counts_endpoints


def test_the_options_that_are_passed_on_are_those_that_are_taken() -> None:
    of_a_route = set(inspect.signature(RouteLimit).parameters) - {"limits"}
    assert LimitOptions.__optional_keys__ == of_a_route


def test_a_blocked_caller_is_refused_and_charged_nothing_by_anybody() -> None:
    clock = ManualClock(100)
    one = Override("rule", "ip=1.2.3.4", 160 * SECOND, block=True)
    limiter = RequestLimiter(policy=replace(POLICY, overrides=(one,)), limits="1/hour", clock=clock)

    async def ask() -> RequestContext:
        context = RequestContext(limiter, ASKED)
        assert not await adrive(context.begin(limiter, limiter.plan(ASKED)))
        return context

    blocking = RequestContext(limiter, ASKED)
    assert not drive(blocking.begin(limiter, limiter.plan(ASKED)))
    for context in (blocking, asyncio.run(ask())):
        assert b'"error": "blocked"' in context.denial_response(limiter).body

    clock.advance(60)
    assert drive(RequestContext(limiter, ASKED).begin(limiter, limiter.plan(ASKED)))
