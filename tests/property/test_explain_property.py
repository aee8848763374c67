"""What an explanation says is what the check that comes next says; and it consumes nothing."""

from __future__ import annotations

import asyncio
import json
from math import ceil
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.admin.reports import explain
from headgate.service.core import Core
from headgate.service.http import HttpApp
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.http_app import scope_of

Answer = dict[str, Any]

SAME = ("mode", "cost", "allowed", "source")
"""What both say of a rule."""
LIMITS = (
    "3/minute",
    "2/s; 5/minute",
    "4/minute gcra",
    "3/minute fixed_window",
    "3/minute sliding_window_log",
    "3/minute sliding_window_counter",
    "3/minute leaky_bucket",
    "2/hour",
)
KEYS = ("ip", "user_id", ["ip", "endpoint"], "global", "api_key", "tenant", ["method", "host"])
MATCHES: tuple[dict[str, Any], ...] = (
    {},
    {"endpoint": "/a"},
    {"endpoint": "/a/**"},
    {"method": "POST"},
    {"endpoint": "/*", "method": ["GET", "POST"]},
    {"tier": "paid"},
    {"headers": {"x-kind": ["bulk"]}},
)


@st.composite
def rules(draw: st.DrawFn, name: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": name, "key_by": draw(st.sampled_from(KEYS))}
    rule["match"] = draw(st.sampled_from(MATCHES))
    rule["mode"] = draw(st.sampled_from(["enforce", "enforce", "enforce", "shadow", "off"]))
    kind = draw(st.sampled_from(["limit", "limit", "limit", "limits", "slots", "shape"]))
    if kind == "limit":
        rule["limit"] = draw(st.sampled_from(LIMITS))
        rule["cost"] = draw(st.sampled_from([1, 1, 2, 0, {"header": "x-cost", "max": 4}]))
        if draw(st.booleans()):
            rule["idempotency"] = True
    elif kind == "limits":
        rule["limits"] = {"free": "2/minute", "paid": "4/minute"}
    elif kind == "slots":
        rule["concurrency"] = 2
    else:
        rule["shape"] = {"rate": "6/minute", "queue": 2}
    return rule


@st.composite
def policies(draw: st.DrawFn) -> str:
    made: list[dict[str, Any]] = [draw(rules(f"rule-{n}")) for n in range(draw(st.integers(0, 4)))]
    policy: dict[str, Any] = {"version": 1, "rules": made}
    by_address = [one for one in made if one["key_by"] == "ip"]
    has_blocks = draw(st.booleans())
    if by_address and has_blocks:
        blocked = {"rule": draw(st.sampled_from(by_address))["id"], "key": "ip=192.0.2.1"}
        policy["overrides"] = [{**blocked, "block": True, "until": "2100-01-01T00:00:00Z"}]
    return json.dumps(policy)


requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "POST", "HEAD"]),
        "path": st.sampled_from(["/a", "/a/b", "/b", "//a", "/%61/", "/A?x=1"]),
        "ip": st.sampled_from(["192.0.2.1", "2001:db8::7"]),
        "headers": st.dictionaries(
            st.sampled_from(
                ["x-user-id", "x-tenant-id", "x-tier", "x-kind", "x-cost", "idempotency-key"]
            ),
            st.sampled_from(["1", "paid", "bulk", '"again"']),
            max_size=3,
        ),
    },
    optional={"cost": st.integers(0, 3)},
)


@settings(max_examples=example_count(25), deadline=None)
@given(policies(), st.lists(st.tuples(requests, st.integers(0, 20)), min_size=1, max_size=10))
def test_the_next_check_says_the_same(
    policy: str, history: list[tuple[dict[str, Any], int]]
) -> None:
    clock = ManualClock(1_800_000_000)
    engine = AsyncRuleEngine(read_policy(policy), clock=clock)
    core = Core(rules=engine, clock=clock, secret=b"x", show_key=str)
    app = HttpApp(core)

    async def explained(request: Answer) -> Answer:
        assert explain.handler is not None
        call = SimpleNamespace(api=SimpleNamespace(core=core), body=request)
        reply = await explain.handler(cast("Any", call))
        return cast("Answer", json.loads(reply.body))

    async def checked(request: Answer) -> Answer:
        sent: list[Any] = []
        body = {"type": "http.request", "body": json.dumps(request).encode()}

        async def receive() -> dict[str, Any]:
            return body

        async def send(message: Any) -> None:
            sent.append(message)

        lines = [("content-type", "application/json")]
        await app(scope_of("POST", "/v1/check", lines), receive, send)
        assert sent[0]["status"] in (200, 429, 503), sent
        return cast("Answer", json.loads(sent[1]["body"]))

    async def each() -> None:
        for request, pause in history:
            told = await explained(request)
            assert await explained(request) == told
            agree(told, await checked(request))
            assert len(told["rules"]) + len(told["not_applied"]) == len(
                engine.in_force.policy.rules
            )
            clock.advance(pause)

    asyncio.run(each())


def agree(told: Answer, said: Answer) -> None:
    """Whether what was *told* is what was *said* then."""
    for name in ("allowed", "revision", "source"):
        assert told[name] == said[name], (name, told, said)
    assert told["denied_by"] == (None if said["allowed"] else said["limit"])
    assert milliseconds(told["delay"]) == said.get("delay_ms", 0)
    assert milliseconds(told["retry_after"]) == said["retry_after_ms"]
    mine = [[one[name] for name in ("rule_id", *SAME)] for one in told["rules"]]
    assert mine == [[one[name] for name in ("id", *SAME)] for one in said["rules"]]
    assert not {one["rule_id"] for one in told["not_applied"]} & {one[0] for one in mine}
    assert all(one["why"] for one in told["not_applied"])


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else ceil(round(seconds * 1_000, 6))
