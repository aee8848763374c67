"""Functions of the request: whose counter, at what cost, under which limits, who is exempt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from headgate.errors import CostError, KeyInvalidError, LimitError
from headgate.integrations import by_header
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.limits import FixedWindow
from headgate.testing import ManualClock
from tests.support.asgi_connection import Answering, drive, http, statuses
from tests.support.async_stores import Waiting

if TYPE_CHECKING:
    from headgate.integrations.asgi import App

ALL_WAYS = pytest.mark.parametrize("limits", ["2/hour", "2/hour fixed_window"])
"""The quick way, and the long one."""


def limited(app: App | None = None, limits: Any = "2/hour", **options: Any) -> RateLimitMiddleware:
    clock = ManualClock(1_000_000_800)
    return RateLimitMiddleware(app or Answering(), limits=limits, clock=clock, **options)


@pytest.mark.parametrize("no_key", [None, "", (), (None, "")])
@ALL_WAYS
def test_an_empty_key_does_not_skip_the_limit_and_is_not_one_for_all(
    limits: str, no_key: Any
) -> None:
    app = limited(limits=limits, key=lambda _: no_key)
    ann, bob = http(client=("203.0.113.1", 1)), http(client=("203.0.113.2", 1))

    assert statuses(app, ann, ann, ann, bob) == [200, 200, 429, 200]


@pytest.mark.parametrize("key", ["ann", 42, UUID(int=7), ("ann", 42, None), "a:{b}\r\n\0" * 9999])
@ALL_WAYS
def test_a_key_function_says_whose_counter_it_is(limits: str, key: Any) -> None:
    app = limited(limits=limits, key=lambda _: key)
    scopes = [http(client=("203.0.113.1", n)) for n in range(3)]

    assert statuses(app, *scopes) == [200, 200, 429]


@ALL_WAYS
@pytest.mark.parametrize("wrong", [1.5, b"ann", True, ["ann"], ("a", ("b",)), object()])
def test_a_key_of_a_wrong_type_is_a_clear_error(limits: str, wrong: Any) -> None:
    app = Answering()

    with pytest.raises(KeyInvalidError, match="the key function returned "):
        drive(limited(app, limits, key=lambda _: wrong))
    assert app.scopes == []


async def by_lookup(request: Any) -> str | None:
    await asyncio.sleep(0)
    found: str | None = request.header("x-user")
    return found


def later(request: Any) -> Any:
    return by_lookup(request)


class Lookup:
    async def __call__(self, request: Any) -> str | None:
        return await by_lookup(request)


@ALL_WAYS
@pytest.mark.parametrize("key", [by_lookup, Lookup(), later])
def test_an_async_key_function_is_awaited_however_it_is_written(limits: str, key: Any) -> None:
    ann, bob = (http(headers=[(b"x-user", name)]) for name in (b"ann", b"bob"))

    assert statuses(limited(limits=limits, key=key), ann, ann, ann, bob) == [200, 200, 429, 200]


@ALL_WAYS
def test_an_error_of_a_key_function_is_not_masked(limits: str) -> None:
    def key(request: Any) -> str:
        raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        drive(limited(limits=limits, key=key))


def test_a_key_function_finds_what_the_server_and_other_middlewares_know() -> None:
    seen: list[Any] = []

    def key(request: Any) -> str:
        seen.append((request.method, request.path, request.host, request.scope["user"]))
        return "ann"

    drive(limited(key=key), http("/a b", method="post", headers=[(b"host", b"h")], user="ann"))

    assert seen == [("POST", "/a%20b", "h", "ann")]


def test_secrets_in_headers_do_not_reach_the_store() -> None:
    store = Waiting()
    app = RateLimitMiddleware(Answering(), limits="2/hour", key=by_header("x-api-key"), store=store)
    drive(app, http(headers=[(b"x-api-key", b"s3cr3t")]))

    assert store.verbs == ["Take"]
    assert "s3cr3t" not in repr(store.asked)


async def is_internal(request: Any) -> bool:
    await asyncio.sleep(0)
    found: str | None = request.header("x-internal")
    return found == "yes"


@pytest.mark.parametrize(
    "exempt_when", [is_internal, lambda request: request.header("x-internal") == "yes"]
)
def test_exempt_when_lets_through_unasked(exempt_when: Any) -> None:
    internal = http(headers=[(b"x-internal", b"yes")])
    app = limited(exempt_when=exempt_when)

    assert statuses(app, *[internal] * 5, http(), http(), http()) == [*[200] * 7, 429]


async def by_plan(request: Any) -> str | None:
    return {"free": "1/hour", "paid": "3/hour"}.get(request.header("x-plan") or "")


def plan_later(request: Any) -> Any:
    return by_plan(request)


@pytest.mark.parametrize("limits", [by_plan, plan_later])
def test_dynamic_limits_depend_on_the_caller_and_none_is_no_limit(limits: Any) -> None:
    def asking(plan: bytes, last: int) -> Any:
        return http(headers=[(b"x-plan", plan)], client=(f"203.0.113.{last}", 1))

    app = limited(limits=limits)

    assert statuses(app, *[asking(b"free", 1)] * 2) == [200, 429]
    assert statuses(app, *[asking(b"paid", 2)] * 4) == [200, 200, 200, 429]
    assert statuses(app, *[asking(b"own", 3)] * 9) == [200] * 9
    assert "ratelimit" not in drive(app, asking(b"own", 3)).headers


@pytest.mark.parametrize("wrong", ["", "often", 5, [], object()])
def test_dynamic_limits_that_are_none_of_the_kind_are_a_clear_error(wrong: Any) -> None:
    with pytest.raises(LimitError, match="limit"):
        drive(limited(limits=lambda _: wrong))


async def by_size(request: Any) -> int:
    return int(request.header("x-size") or 1)


@pytest.mark.parametrize("cost", [by_size, lambda request: int(request.header("x-size") or 1)])
def test_a_cost_function_says_what_a_request_takes_and_a_refusal_takes_nothing(cost: Any) -> None:
    app = limited(limits=FixedWindow(10, 3600), cost=cost)
    scopes = [http(headers=[(b"x-size", b"%d" % size)]) for size in (6, 6, 4)]

    assert statuses(app, *scopes) == [200, 429, 200]


@pytest.mark.parametrize("wrong", [-1, 1.5, None, "1", True, 10**30])
def test_a_cost_function_that_returns_nonsense_is_a_clear_error(wrong: Any) -> None:
    app = Answering()

    with pytest.raises(CostError, match="what the cost function returned"):
        drive(limited(app, cost=lambda _: wrong))
    assert app.scopes == []


def test_a_cost_that_can_never_fit_is_refused_without_a_time_to_come_back() -> None:
    refused = drive(limited(cost=3))

    assert refused.status == 429
    assert "retry-after" not in refused.headers
