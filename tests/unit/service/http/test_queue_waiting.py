"""Rules that delay: what the caller is told, and what a gateway is kept waiting for."""

from __future__ import annotations

import asyncio
import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.policy.loader import read_policy
from headgate.responses import ResponseOptions
from headgate.service.http import HttpApp
from headgate.service.http.check import ResponseEncoder
from headgate.stores import MemoryStore
from headgate.stores.operations import CancelQueued
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.http_app import FakeStore, answer_of, app_of, ask, check, core_of, post, scope_of
from tests.support.verdict_json import verdict_json

if TYPE_CHECKING:
    from headgate.stores.operations import Operation
    from headgate.testing import ManualClock
    from tests.support.http_app import Answer

SHAPED = """
version: 1
rules:
  - {id: exports, key_by: ip, shape: {rate: 2/s, queue: 3}}
  - {id: wide, key_by: ip, limit: 100/minute}
"""


class Noting(FakeStore):
    """A store that remembers which turns were given up."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(clock)
        self.vacated: list[CancelQueued] = []

    async def arun(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, CancelQueued):
            self.vacated.append(operation)
        return await super().arun(operation)


def test_a_check_is_told_how_long_to_wait_and_how_long_the_queue_is() -> None:
    app = app_of(SHAPED)
    first, second, third = (check(app) for _ in range(3))
    assert "delay_ms" not in first.json
    assert "headgate-delay" not in first.headers
    assert [one.status for one in (first, second, third)] == [200, 200, 200]
    assert (second.json["delay_ms"], third.json["delay_ms"]) == (500, 1_000)
    assert third.headers["headgate-delay"] == "1.0"
    assert third.headers["headgate-queue"] == '"exports";waiting=2;wait=1.5'
    assert third.headers["x-ratelimit-limit"] == "4"
    assert third.headers["x-ratelimit-remaining"] == "1"


def test_a_full_queue_is_429_and_says_when_there_is_room() -> None:
    app = app_of(SHAPED)
    for _ in range(4):
        check(app)
    answer = check(app)
    assert answer.status == 429
    assert answer.json["error"] == "rate_limit_exceeded"
    assert answer.json["limit"] == "exports"
    assert answer.json["retry_after_ms"] == 500
    assert "2 per second, one after the other, with up to 3 waiting" in answer.json["message"]
    assert "delay_ms" not in answer.json


def test_a_look_tells_the_delay_and_takes_no_turn() -> None:
    app = app_of(SHAPED)
    check(app)
    for _ in range(2):
        assert check(app, peek=True).status == 200
    assert check(app).json["delay_ms"] == 500


def test_what_is_told_quickly_of_a_queue_is_what_is_told_slowly() -> None:
    core = core_of(SHAPED)
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    for _ in range(4):
        verdict = asyncio.run(core.rules.check(Request("GET", "/", peer="203.0.113.7")))
        assert encoder.lines(verdict) == encoder.slow_lines(verdict)
        assert encoder.text(verdict) == json.dumps(verdict_json(verdict))


def test_the_limits_of_a_caller_show_a_queue() -> None:
    app = app_of(SHAPED)
    check(app)
    answer = post(app, "/v1/rate_limit", {"ip": "203.0.113.7"})
    queue = answer.json["limits"][0]
    assert (queue["name"], queue["quota"], queue["remaining"]) == ("exports", 4, 3)
    assert (queue["window"], queue["reset_after"]) == (2, 0.5)
    assert queue["limit"] == "2/s in a queue of 3"


def test_a_reservation_takes_a_turn_and_holds_nothing_in_the_queue() -> None:
    app = app_of(SHAPED)
    check(app)
    made = post(app, "/v1/reservations", {"path": "/", "ip": "203.0.113.7", "cost": 5})
    assert (made.status, made.json["delay_ms"]) == (201, 500)
    assert made.headers["headgate-delay"] == "0.5"
    assert {one["id"]: one["cost"] for one in made.json["rules"]} == {"exports": 1, "wide": 5}
    done = post(app, f"/v1/reservations/{made.json['id']}/commit", {"cost": 2})
    assert (done.status, done.json) == (200, {"charged": {"wide": 2}})
    assert check(app).json["delay_ms"] == 1_000


def test_what_was_held_before_a_rule_became_a_queue_is_settled_in_full() -> None:
    limited = "version: 1\nrules: [{id: a, key_by: ip, limit: 10/minute}]"
    core = core_of(limited)
    app = HttpApp(core)
    made = post(app, "/v1/reservations", {"path": "/", "ip": "203.0.113.7", "cost": 2})
    queue = "version: 1\nrules: [{id: a, key_by: ip, shape: {rate: 1/s, queue: 50}}]"
    core.rules.replace(read_policy(queue))
    path = f"/v1/reservations/{made.json['id']}/commit"
    assert post(app, path, {"cost": 5}).json == {"charged": {"a": 5}}
    assert check(app).json["delay_ms"] == 5_000


def test_who_would_hold_something_in_a_queue_is_told_that_it_cannot_be() -> None:
    answer = post(app_of(SHAPED), "/v1/reservations", {"path": "/", "cost": {"exports": 1}})
    assert answer.status == 400
    (error,) = answer.json["errors"]
    assert (error["field"], error["hint"]) == ("cost.exports", "remove it")


async def timed(app: HttpApp, path: str = "/v1/authorize/a") -> tuple[float, Answer]:
    """When the answer came, and what it was; the client stays."""
    loop = asyncio.get_running_loop()
    answer = await kept(app, scope_of("GET", path, [("x-forwarded-for", "203.0.113.7")]))
    return round(loop.time(), 3), answer


async def kept(app: HttpApp, scope: dict[str, Any], left: asyncio.Event | None = None) -> Answer:
    """What *app* says to a client that leaves when *left* is set, as a server tells it."""
    bodies = [{"type": "http.request", "body": b"x", "more_body": True}]
    bodies.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        if bodies:
            return bodies.pop(0)
        await (left or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def through(scope: dict[str, Any], _: Any, send: Any) -> None:
        await app(scope, receive, send)

    return await answer_of(through, scope)


def test_a_gateway_is_answered_when_the_request_has_its_turn() -> None:
    async def scenario() -> None:
        app = app_of(SHAPED)
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(timed(app) for _ in range(5)))
        times = [round(when - began, 3) for when, _ in answers]
        assert times == [0.0, 0.5, 1.0, 1.5, 0.0]
        assert [answer.status for _, answer in answers] == [200, 200, 200, 200, 429]
        assert answers[3][1].headers["headgate-delay"] == "1.5"

    run_virtually(scenario())


def test_a_gateway_that_gives_up_gives_its_turn_up() -> None:
    async def scenario() -> None:
        store = Noting()
        app = app_of(SHAPED, store=store)
        await timed(app)
        left = asyncio.Event()
        scope = scope_of("GET", "/v1/authorize/a", [("x-forwarded-for", "203.0.113.7")])
        going = asyncio.ensure_future(kept(app, scope, left))
        await asyncio.sleep(0.2)
        assert not going.done()
        left.set()
        with pytest.raises(ValueError, match="not enough values"):  # nobody was answered
            await going
        (vacate,) = store.vacated
        assert [one.key for one in vacate.checks] == ["ip=203.0.113.7"]
        assert (await timed(app))[1].headers["headgate-delay"] == "0.5"

    run_virtually(scenario())


def test_a_service_that_stops_gives_the_turns_up_that_it_holds() -> None:
    async def scenario() -> None:
        store = Noting()
        app = app_of(SHAPED, store=store)
        await timed(app)
        going = asyncio.ensure_future(timed(app))
        await asyncio.sleep(0.2)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert len(store.vacated) == 1

    run_virtually(scenario())


def test_a_place_that_is_held_while_waiting_is_given_back_with_the_turn() -> None:
    policy = SHAPED + "  - {id: places, key_by: ip, concurrency: 2}\n"

    async def scenario() -> None:
        app = app_of(policy)
        await timed(app)
        going = asyncio.ensure_future(timed(app))
        await asyncio.sleep(0.2)
        assert (await timed(app))[1].status == 429
        going.cancel()
        await asyncio.wait({going})
        assert (await timed(app))[1].status == 200

    run_virtually(scenario())


def test_a_place_is_kept_while_waiting_and_its_lease_begins_with_the_turn() -> None:
    policy = """
version: 1
rules:
  - {id: slow, key_by: ip, shape: {rate: 1 per 10s, queue: 3}}
  - {id: places, key_by: global, concurrency: {limit: 1, ttl: 3s}}
"""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        store = FakeStore()
        store.inner = MemoryStore(clock=loop.time_ns)
        app = app_of(policy, store=store)
        await timed(app)
        await asyncio.sleep(5)
        going = asyncio.ensure_future(timed(app))
        other = [("x-forwarded-for", "203.0.113.8")]
        statuses: list[int] = []
        for _ in range(4):  # 7, 9, 11 and 15: it has its turn at 10
            await asyncio.sleep(2 if len(statuses) < 3 else 4)
            statuses.append((await kept(app, scope_of("GET", "/v1/authorize/a", other))).status)
        assert statuses == [429, 429, 429, 200]
        assert (await going)[1].status == 200

    run_virtually(scenario())


SOFT = """
version: 1
pressure: {latency: 500ms}
rules:
  - {id: soft, key_by: ip, limit: 10/minute, adaptive: {floor: 20%}}
"""


def test_a_lowered_limit_sheds_and_requests_that_were_known_before_are_planned_anew() -> None:
    core = core_of(SOFT)
    app = HttpApp(core)
    assert check(app).status == 200
    core.rules.in_force.scale.factor = Fraction(1, 10)
    for _ in range(2):
        answer = check(app)
    assert answer.status == 503
    assert answer.json["error"] == "temporarily_overloaded"
    assert int(answer.headers["retry-after"]) >= 1
    # To Envoy a 503 would be a failure of the service, upon which it may let everything pass.
    via = [("x-forwarded-for", "203.0.113.7")]
    answer = ask(app, "GET", "/v1/authorize/a", via)
    assert (answer.status, answer.json["error"]) == (429, "temporarily_overloaded")
    other = [*via, ("x-forwarded-uri", "/a"), ("x-forwarded-method", "GET")]
    assert ask(app, "GET", "/v1/authorize", other).status == 503
    core.rules.in_force.scale.factor = Fraction(1)
    assert check(app).status == 200


def test_rules_by_which_requests_take_turns_in_apps_are_passed_by() -> None:
    app = app_of("version: 1\nrules: [{id: turns, key_by: ip, fair: {slots: 1}}]")
    for _ in range(3):
        answer = check(app)
        assert (answer.status, answer.json["rules"]) == (200, [])
    assert ask(app, "GET", "/v1/authorize/a").status == 200
    assert post(app, "/v1/rate_limit", {"ip": "203.0.113.7"}).json == {"limits": []}
    assert post(app, "/v1/reservations", {"path": "/", "cost": 1}).status == 201
