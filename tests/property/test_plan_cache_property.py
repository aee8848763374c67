"""The plan cache never changes a plan: what it returns equals a plan that is made afresh."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.integrations.asgi import AsgiRequest
from headgate.integrations.wsgi import WsgiRequest
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.limit_adjustment import Scale
from headgate.policy.loader import read_policy
from headgate.policy.plan_cache import attributes_of_interest, headers_of_interest
from tests.examples import example_count

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = """
version: 1
identity:
  tier: {header: x-plan, default: free}
  session: {cookie: sid}
  team: {attribute: team}
  region: {lookup: team, values: {red: north}}
  ip: {trusted_proxies: [10.0.0.0/8], header: x-trail}
priority:
  - {match: {headers: {x-urgent: true}}, class: critical}
  - {match: {attributes: {kind: [batch]}}, class: sheddable}
rules:
  - {id: headers, match: {endpoint: /a/**, headers: {x-kind: [big, small]}}, key_by: user_id,
     limit: 5/m}
  - {id: cookies, match: {cookies: {beta: true}}, key_by: [session, ip], limit: 5/m}
  - {id: tiers, key_by: "header:x-own", limits: {free: 3/m, paid: [9/m, 100/h], default: 2/m}}
  - {id: shadow, key_by: "cookie:other", limit: 7/m, mode: shadow}
  - {id: cost, key_by: api_key, limit: 50/m, cost: {header: x-cost, max: 20}}
  - {id: costs, key_by: global, limit: 50/m, cost: {default: 2, endpoints: {/a/**: 5}}}
  - {id: once, match: {method: POST}, key_by: tenant, limit: 50/m,
     idempotency: {ttl: 60s, header: x-once}}
  - {id: hosts, match: {host: "*.example.com"}, key_by: [host, method], limit: 5/m}
  - {id: routes, match: {attributes: {kind: [batch, live]}}, key_by: [endpoint, team, region],
     limit: 5/m}
  - {id: slots, match: {endpoint: /slow/**}, key_by: ip,
     concurrency: {limit: 4, ttl: 30s, reserve: {critical: 25%}}}
  - {id: soft, key_by: ip, limit: 40/m, adaptive: {floor: 25%}}
  - {id: attributes, key_by: ["attribute:other", "attribute:team"], limit: 5/m}
  - {id: turns, match: {endpoint: /fair/**}, key_by: tenant, fair: {slots: 2}}
overrides:
  - {rule: headers, key: user_id=ada, block: true, until: "2030-01-01T00:00:00Z"}
  - {rule: soft, key: ip=1.2.3.4, extra: 10, until: "2030-01-01T00:00:00Z"}
"""
BEFORE = 1_800_000_000_000_000_000
AFTER = 1_900_000_000_000_000_000
RULES = read_policy(POLICY)

NAMES = (
    *("x-plan", "cookie", "x-trail", "x-kind", "x-user-id", "x-own", "x-api-key", "x-cost"),
    *("x-tenant-id", "x-once", "x-urgent", "x-forwarded-for", "user-agent", "X-Plan", "host"),
)
VALUES = ("", "1", "2", "big", "paid", "ada", "sid=1", "beta=x; other=3", "10.0.0.1, 1.2.3.4", "é")
LINES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6)
REQUESTS = st.builds(
    Request,
    st.sampled_from(["GET", "get", "POST", "HEAD", "OPTIONS"]),
    st.sampled_from(["/a/1", "/a/2", "/b", "/a/../b", "//a/1", "/slow/x", "/fair/x", "/a b"]),
    st.sampled_from(["", "x.example.com", "X.example.com:80", "other.org"]),
    LINES.map(tuple),
    st.sampled_from(["10.0.0.9", "1.2.3.4", "203.0.113.7", "2001:db8::1", "2001:db8::2", ""]),
    st.dictionaries(
        st.sampled_from(["team", "kind", "route", "other"]),
        st.sampled_from(["red", "batch", "live", "/a/{id}"]),
        max_size=3,
    ),
)
COSTS = st.sampled_from([None, 1, 3, {"cost": 2}, {"soft": 2, "cost": 4}])


def _compiled(now_ns: int = BEFORE, factor: Fraction | None = None) -> CompiledPolicy:
    scale = Scale()
    if factor is not None:
        scale.factor = factor
    return CompiledPolicy(RULES, salt=b"salt", clock=lambda: now_ns, scale=scale)


def _asgi(request: Request) -> Request:
    lines = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in request.headers]
    scope = {"type": "http", "method": request.method, "path": request.path, "headers": lines}
    found = AsgiRequest({**scope, "client": (request.peer, 1)})
    found.add_attributes(request.attributes)
    return found


def _wsgi(request: Request) -> Request:
    environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers}
    environ |= {"REQUEST_METHOD": request.method, "PATH_INFO": request.path}
    found = WsgiRequest({**environ, "REMOTE_ADDR": request.peer})
    found.add_attributes(request.attributes)
    return found


KINDS = st.sampled_from([lambda request: request, _asgi, _wsgi])


@given(st.lists(st.tuples(REQUESTS, KINDS, COSTS), min_size=2, max_size=12))
@settings(max_examples=example_count(200), deadline=None)
def test_a_cached_plan_equals_a_fresh_one(
    asked: list[tuple[Request, Callable[[Request], Request], Any]],
) -> None:
    cached = _compiled()
    for _ in range(2):
        for request, kind, cost in asked:
            fresh = _compiled().plan(kind(request), cost=cost)
            assert cached.plan(kind(request), cost=cost) == fresh


def _changes(request: Request, change: Request) -> list[Request]:
    """*request* with each of its parts in turn as *change* has it."""
    parts = ("method", "path", "host", "headers", "peer", "attributes")
    found = [replace(request, **{part: getattr(change, part)}) for part in parts]
    for n in range(len(request.headers)):
        fewer = request.headers[:n] + request.headers[n + 1 :]
        found.append(replace(request, headers=fewer))
        found.append(replace(request, headers=(*fewer, request.headers[n])))
    return found + [replace(request, headers=(*request.headers, line)) for line in change.headers]


@given(REQUESTS, REQUESTS, KINDS, st.sampled_from([None, "lease"]))
@settings(max_examples=example_count(150), deadline=None)
def test_a_change_of_any_part_of_a_request_is_planned(
    request: Request, change: Request, kind: Callable[[Request], Request], lease: str | None
) -> None:
    cached, fresh = _compiled(), _compiled()
    cached.plan(kind(request))
    for one in _changes(request, change):
        fresh = _compiled()
        assert cached.plan(kind(one), lease=lease) == fresh.plan(kind(one), lease=lease)


@given(REQUESTS, st.sampled_from([Fraction(1, 2), Fraction(1, 4), Fraction(1)]))
@settings(max_examples=example_count(60), deadline=None)
def test_a_change_of_pressure_or_time_is_planned(request: Request, factor: Fraction) -> None:
    scale, now = Scale(), [BEFORE]
    cached = CompiledPolicy(RULES, salt=b"salt", clock=lambda: now[0], scale=scale)
    cached.plan(request)
    scale.factor = factor
    assert cached.plan(request) == _compiled(factor=factor).plan(request)
    now[0] = AFTER  # overrides have ended
    assert cached.plan(request) == _compiled(AFTER, factor).plan(request)
    scale.factor = Fraction(1)
    assert cached.plan(request) == _compiled(AFTER).plan(request)


class _Watched(Request):
    """A request that records which headers and attributes are read."""

    __slots__ = ("seen",)
    seen: set[str]

    def header_lines(self, name: str) -> list[str]:
        self.seen.add(name)
        return Request.header_lines(self, name)

    def header(self, name: str) -> str | None:
        self.seen.add(name)
        return Request.header(self, name)


class _Attributes(dict[str, str]):
    seen: set[str]

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> str:
        self.seen.add(name)
        return super().__getitem__(name)


@given(REQUESTS)
@settings(max_examples=example_count(200), deadline=None)
def test_rules_read_nothing_that_is_not_in_the_key(request: Request) -> None:
    attributes = _Attributes(request.attributes)
    attributes.seen = set()
    watched = _Watched(
        request.method, request.path, request.host, request.headers, request.peer, attributes
    )
    object.__setattr__(watched, "seen", set())
    plan = _compiled().plan(watched)
    assert watched.seen <= headers_of_interest(RULES)
    assert attributes.seen <= set(attributes_of_interest(RULES))
    names = headers_of_interest(RULES)
    fewer = tuple(line for line in request.headers if line[0].lower() in names)
    assert _compiled().plan(replace(request, headers=fewer)) == plan


def test_equal_requests_share_a_plan_and_others_do_not() -> None:
    cached = _compiled()
    request = Request("GET", "/b", headers=(("x-own", "1"), ("accept", "a")), peer="203.0.113.7")
    plan = cached.plan(request)
    other = replace(request, headers=(("x-own", "1"), ("accept", "b")))
    assert cached.plan(other) is plan  # no rule reads Accept
    assert cached.plan(replace(request, peer="203.0.113.8")) is not plan
    assert cached.plan(request, cost=1) is not plan
    assert cached.plan(request, cost=1, is_estimate=True).open


@pytest.mark.parametrize(
    "request_",
    [
        Request("POST", "/b", headers=(("x-once", "7"),)),
        Request("GET", "/slow/x", peer="203.0.113.7"),
        Request("GET", "/b", peer="1.2.3.4"),
        Request("GET", "/a/1", headers=(("x-kind", "big"), ("x-user-id", "ada"))),
    ],
    ids=["idempotency", "slots", "extra", "block"],
)
def test_a_plan_of_one_request_or_one_moment_is_not_shared(request_: Request) -> None:
    cached = _compiled()
    first = cached.plan(request_)
    assert cached.plan(request_) is not first
