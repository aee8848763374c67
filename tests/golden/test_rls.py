"""What Envoy's rate limit service answers, under rules and under envoyproxy/ratelimit's YAML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.golden.http_calls import Step as HttpStep
from tests.golden.http_calls import get, post, sent
from tests.golden.http_calls import record as record_http
from tests.golden.rls_messages import (
    Repeat,
    Step,
    Wait,
    call,
    descriptor,
    record,
    record_error,
)
from tests.golden.transcript import PROSE, Transcript
from tests.support.service_process import ServiceProcess, service_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OF_DOMAINS = {
    "token_bucket": "limit: 3/hour",
    "burst": "limit: 1/minute burst 3",
    "peak": "limit: 2/s peak 4/s for 5s",
    "gcra": "algorithm: gcra, rate_per_sec: 0.5, burst: 2",
    "leaky": "algorithm: leaky_bucket, capacity: 2, leak_rate_per_sec: 0.1",
    "fixed": "limit: 2/minute fixed_window",
    "log": "limit: 2/minute sliding_window_log",
    "counter": "limit: 3/minute sliding_window_counter",
    "stacked": "limits: [2/minute, 3/day fixed_window]",
    "unit-second": "limit: 7/s",
    "unit-minute": "limit: 7/minute",
    "unit-hour": "limit: 7/hour",
    "unit-day": "limit: 7/day",
    "unit-week": "limit: 7/week",
    "unit-other": "limit: 7 per 90s",
    "unit-huge": "limit: 5_000_000_000/hour",
    "amounts": "limit: 10/hour",
    "reported": "limit: 10/hour",
    "costly": """limit: 10/hour,
     cost: {default: 2, endpoints: {"POST /export": 5}, header: x-cost, max: 8}""",
    "switched-off": 'limit: 1/hour, mode: "off"',
    "no-headers": 'limit: 1/hour, headers: "off"',
    "brief": "limit: 1/hour, headers: brief",
    "redacted": "limit: 1/hour, headers: redacted",
    "slots": "concurrency: {limit: 1, ttl: 30s}",
    "slots-and-rate": "limits: [{algorithm: concurrency, limit: 1, ttl: 30s}, 2/hour]",
    "queue": "shape: {rate: 1/s, queue: 2}",
    "turns": "fair: {slots: 1}",
    "fail-closed": "limit: 1/hour, on_store_failure: fail_closed",
    "retried": "limit: 2/hour, idempotency: true",
}
"""By domain, the limits of each user; the rule has the name of the domain."""

RULES = """\
version: 1
identity:
  ip: {trusted_proxies: [10.0.0.0/8]}
rules:
  - {id: shadowed, match: {attributes: {domain: shadow}}, key_by: attribute:user, limit: 1/hour,
     mode: shadow}
  - {id: beside-shadow, match: {attributes: {domain: shadow}}, key_by: attribute:user,
     limit: 2/hour}
  - {id: first, match: {attributes: {domain: several, user: true}}, key_by: attribute:user,
     limit: 5/hour}
  - {id: second, match: {attributes: {domain: several, route: true}}, key_by: attribute:route,
     limit: 2/hour}
  - {id: every, match: {attributes: {domain: several}}, key_by: global, limit: 1000/hour}
  - {id: two-parts, match: {attributes: {domain: parts}}, key_by: [attribute:a, attribute:b],
     limit: 1/hour}
  - {id: twice, match: {attributes: {domain: twice}}, key_by: "attribute:k#2", limit: 1/hour}
  - {id: login, match: {endpoint: /login, method: POST}, key_by: ip, limit: 1/hour}
  - {id: reads, match: {endpoint: /files/**, method: GET}, key_by: [ip, endpoint], limit: 1/hour}
  - {id: site, match: {host: "*.example.com"}, key_by: host, limit: 1/hour}
  - {id: by-key, match: {endpoint: /api/**}, key_by: api_key,
     limits: {paid: 2/hour, default: 1/hour}}
  - {id: decided, match: {endpoint: /decided}, key_by: ip, limit: 1/hour}
  - {id: tokens, match: {endpoint: /chat}, key_by: ip, limit: 100/hour,
     cost: {default: 10, after: {header: x-tokens, max: 60}}}
""" + "".join(
    f"  - {{id: {name}, match: {{attributes: {{domain: {name}}}}}, key_by: attribute:user,\n"
    f"     {limits}}}\n"
    for name, limits in OF_DOMAINS.items()
)

YAML = {
    "envoy/shop.yaml": """\
domain: shop
descriptors:
  - key: second
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: minute
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: hour
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: week
    rate_limit: {unit: week, requests_per_unit: 2}
  - key: month
    rate_limit: {unit: month, requests_per_unit: 2}
  - key: year
    rate_limit: {unit: YEAR, requests_per_unit: 2}
  - key: user
    rate_limit: {name: per-user, unit: hour, requests_per_unit: 3}
  - key: user
    value: ada
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: user
    value: root
    rate_limit: {unlimited: true}
  - key: user
    value: banned
    rate_limit: {unit: minute, requests_per_unit: 0}
  - key: plan
    descriptors:
      - key: route
        value: /login
        rate_limit: {unit: minute, requests_per_unit: 1}
      - key: route
        rate_limit: {unit: minute, requests_per_unit: 2}
        descriptors:
          - key: method
            rate_limit: {unit: minute, requests_per_unit: 1}
  - key: path
    value: /files/*
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: path
    value: /shared/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: path
    value: "*.css"
    rate_limit: {unlimited: true}
  - key: quiet
    shadow_mode: true
    rate_limit: {name: quiet, unit: hour, requests_per_unit: 1}
  - key: big
    rate_limit: {name: big, unit: hour, requests_per_unit: 1}
  - key: bigger
    rate_limit:
      name: bigger
      unit: hour
      requests_per_unit: 4
      replaces: [{name: big}]
  - key: gold
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
    metadata: {lane: fast, more: {of: quota}}
  - key: silver
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 2}
    metadata: {lane: slow, level: 2}
""",
    "envoy/infra.yaml": """\
domain: infra
descriptors:
  - key: ip
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 1}
""",
}

MERGED = """\
domain: shop
descriptors:
  - key: merged
    rate_limit: {unit: hour, requests_per_unit: 1}
"""

ENVOY_RULES = """\
version: 1
rules:
  - {id: of-rules, match: {attributes: {domain: rules}}, key_by: attribute:user, limit: 1/hour}
  - {id: overridden, match: {attributes: {domain: overridden}}, key_by: attribute:user,
     limit: 2/hour}
overrides:
  - {rule: overridden, key: "attribute:user=blocked", block: true, until: 2030-01-01T12:00:00Z}
  - {rule: overridden, key: "attribute:user=more", extra: 1, until: 2030-01-01T12:00:00Z}
  - {rule: overridden, key: "attribute:user=over", block: true, until: 2029-12-31T12:00:00Z}
"""

USER = descriptor("user=ada")
HOUR = 3
"""The number of the unit."""

ALGORITHMS: dict[str, Step] = {
    "token bucket": Repeat(call("token_bucket", USER), 4),
    "20 minutes pass": Wait(1200),
    "token bucket refills": Repeat(call("token_bucket", USER), 2),
    "token bucket, other user": call("token_bucket", descriptor("user=bob")),
    "burst": Repeat(call("burst", USER), 4),
    "peak": Repeat(call("peak", USER), 6),
    "gcra": Repeat(call("gcra", USER), 4),
    "leaky bucket": Repeat(call("leaky", USER), 3),
    "fixed window": Repeat(call("fixed", USER), 3),
    "sliding log": Repeat(call("log", USER), 3),
    "sliding counter": Repeat(call("counter", USER), 4),
    "stacked": Repeat(call("stacked", USER), 3),
    "45 seconds pass": Wait(45),
    "burst later": call("burst", USER),
    "peak later": Repeat(call("peak", USER), 2),
    "gcra later": call("gcra", USER),
    "leaky bucket later": call("leaky", USER),
    "fixed window later": call("fixed", USER),
    "sliding log later": call("log", USER),
    "sliding counter later": call("counter", USER),
    "stacked later": Repeat(call("stacked", USER), 2),
}

UNITS: dict[str, Step] = {
    unit: call(f"unit-{unit}", USER)
    for unit in ("second", "minute", "hour", "day", "week", "other", "huge")
}

DESCRIPTORS: dict[str, Step] = {
    "two": Repeat(call("several", USER, descriptor("route=/a")), 3),
    "first alone was charged twice": call("several", USER),
    "one descriptor, two rules": call("several", descriptor("user=bob", "route=/b")),
    "one of three matches nothing": call("several", USER, descriptor("other=x"), descriptor()),
    "the same twice": call("several", descriptor("user=cy"), descriptor("user=cy")),
    "17 rules or more": call("several", *(descriptor(f"user=u{n}") for n in range(18))),
    "no rule": call("nobody", USER),
    "no entries": call("nobody", descriptor()),
    "parts of a key": Repeat(call("parts", descriptor("a=x&y", "b=z")), 2),
    "parts otherwise": call("parts", descriptor("a=x", "b=y&z")),
    "part missing": Repeat(call("parts", descriptor("a=x")), 2),
    "key twice": Repeat(call("twice", descriptor("k=1", "k=2")), 2),
    "value that is no UTF-8": call("token_bucket", USER).replace(b"ada", b"a\xffa"),
    "long value": call("token_bucket", descriptor(("user", "x" * 5_000))),
    "unicode": call("token_bucket", descriptor("user=ädä")),
}

AMOUNTS: dict[str, Step] = {
    "of the call": call("amounts", USER, hits=4),
    "of the descriptor": call("amounts", descriptor("user=ada", hits=5), hits=100),
    "more than is left": call("amounts", USER, hits=2),
    "more than ever": call("amounts", descriptor("user=bob"), hits=11),
    "zero looks": call("amounts", descriptor("user=cy", hits=0)),
    "zero of the call": call("amounts", descriptor("user=cy"), hits=0),
    "largest": call("amounts", descriptor("user=dora", hits=2**32 - 1)),
    "refund": call("amounts", descriptor("user=ada", hits=4, is_refund=True)),
    "after the refund": call("amounts", USER, hits=5),
    "refund of more than was charged": call(
        "amounts", descriptor("user=eve", hits=9, is_refund=True)
    ),
    "refund of zero": call("amounts", descriptor("user=ada", hits=0, is_refund=True)),
    "look first": call("reported", descriptor("user=ada", hits=0)),
    "report beyond the limit": call("reported", descriptor("user=ada", hits=25)),
    "look at the debt": call("reported", descriptor("user=ada", hits=0)),
    "take in debt": call("reported", USER),
    "two hours pass": Wait(7200),
    "look when it is worked off": call("reported", descriptor("user=ada", hits=0)),
    "look when nothing is left": call("reported", descriptor("user=bob", hits=10)),
    "look then": call("reported", descriptor("user=bob", hits=0)),
    "cost by default": call("costly", USER),
    "cost of an endpoint": call("costly", descriptor("user=ada", "path=/export", "method=POST")),
    "cost in a header": call("costly", descriptor("user=bob", "x-cost=6")),
    "cost above the maximum": call("costly", descriptor("user=cy", "x-cost=600")),
    "cost said by the call": call("costly", descriptor("user=dora"), hits=9),
}

MODES: dict[str, Step] = {
    "shadow": Repeat(call("shadow", USER), 3),
    "off": Repeat(call("switched-off", USER), 2),
    "headers off": Repeat(call("no-headers", USER), 2),
    "headers brief": Repeat(call("brief", USER), 2),
    "redacted": Repeat(call("redacted", USER), 2),
    "concurrency": Repeat(call("slots", USER), 2),
    "concurrency and a rate": Repeat(call("slots-and-rate", USER), 3),
    "queue": Repeat(call("queue", USER), 4),
    "fair": Repeat(call("turns", USER), 2),
    "fail closed": Repeat(call("fail-closed", USER), 2),
    "idempotency": Repeat(call("retried", descriptor("user=ada", "idempotency-key=1")), 3),
}

ADA = "remote_address=192.0.2.1"
LOGIN = ("path=/login", "method=POST")


def edge(*entries: str) -> bytes:
    """A call about one request."""
    return call("edge", descriptor(*entries))


def gateway(path: str, *more: str, hits: int | None = None) -> bytes:
    """A call as Headgate's own gateway makes it."""
    return call(
        "headgate", descriptor(*more, "method=GET", f"path={path}", "host=a", ADA, hits=hits)
    )


REQUESTS: dict[str, Step] = {
    "login": Repeat(edge(*LOGIN, ADA), 2),
    "login spelled otherwise": edge(":path=//LOGIN?x=1", ":method=post", ADA),
    "login by GET": edge("path=/login", "method=GET", ADA),
    "login without a method": edge("path=/login", ADA),
    "login without an address": Repeat(edge(*LOGIN), 2),
    "masked address": Repeat(edge(*LOGIN, "masked_remote_address=192.0.2.0/24"), 2),
    "IPv6": edge(*LOGIN, "remote_address=2001:db8::1"),
    "IPv6, the same network": edge(*LOGIN, "remote_address=2001:db8::ffff"),
    "behind a proxy": edge(*LOGIN, "remote_address=10.0.0.1", "x-forwarded-for=198.51.100.7"),
    "GET file": Repeat(edge("path=/files/a", "method=GET", ADA), 2),
    "HEAD file": edge("path=/files/a", "method=HEAD", ADA),
    "other file": edge("path=/files/b", "method=GET", ADA),
    "host": Repeat(edge(":authority=api.example.com:443"), 2),
    "API key": Repeat(edge("path=/api/x", "x-api-key=secret-1"), 2),
    "API key with a tier": Repeat(edge("path=/api/x", "x-api-key=secret-2", "x-tier=paid"), 3),
    "no API key": edge("path=/api/x", "remote_address=192.0.2.9"),
}

OWN_LIMITS: dict[str, Step] = {
    "in place of a rule's": Repeat(
        call("token_bucket", descriptor("user=own", limit=(1, HOUR))), 2
    ),
    "without a rule": Repeat(call("nobody", descriptor("user=own", limit=(2, HOUR))), 3),
    "without a rule, another number": call("nobody", descriptor("user=own", limit=(5, HOUR))),
    "0 of a rule": call("token_bucket", descriptor("user=own0", limit=(0, 2))),
    "0 without a rule": call("nobody", descriptor("user=own0", limit=(0, HOUR))),
    "with hits": call("nobody", descriptor("user=own2", limit=(5, HOUR), hits=3), hits=9),
    **{
        f"unit {unit}": call("nobody", descriptor(f"unit={unit}", limit=(3, unit)))
        for unit in range(1, 8)
    },
    "largest": call("nobody", descriptor("user=own3", limit=(2**32 - 1, 1))),
}

GATEWAY: dict[str, Step] = {
    "exact": Repeat(gateway("/decided"), 2),
    "decided elsewhere": gateway("/decided", "headgate.decided=decided"),
    "entry": gateway("/chat"),
    "report": gateway("/chat", "headgate.report=tokens", hits=30),
    "report of a refusal": gateway(
        "/chat", "headgate.report=tokens", "headgate.refused=limit", hits=50
    ),
    "report to no rule": gateway("/chat", "headgate.report=nobody", hits=50),
    "report that is no number": gateway("/chat", "headgate.report=tokens", hits=2**63),
    "entry after the reports": gateway("/chat"),
    "report beyond the maximum": gateway("/chat", "headgate.report=tokens", hits=5000),
    "entry after that": Repeat(gateway("/chat"), 2),
    "other domain": edge("headgate.decided=decided", "path=/decided", "remote_address=192.0.2.3"),
    "debug token that is none": gateway("/", "headgate.debug=x.y"),
}

INVALID: dict[str, Step] = {
    "no bytes": b"",
    "no message": b"\xff\xff\xff",
    "no domain": call("", USER),
    "no descriptors": call("edge"),
    "long domain": call("x" * 1025, USER),
    "256 descriptors": call("nobody", *([descriptor()] * 256)),
    "257 descriptors": call("nobody", *([descriptor()] * 257)),
    "1024 entries": call("nobody", descriptor(*["a=b"] * 1024)),
    "1025 entries": call("nobody", descriptor(*["a=b"] * 1025)),
    "long key": call("nobody", descriptor(("k" * 1025, "v"))),
    "long value": call("nobody", descriptor(("k", "v" * 98_305))),
    "unknown unit": call("nobody", USER, descriptor("a=b", limit=(1, 0))),
    "unit that is none": call("nobody", descriptor("a=b", limit=(1, 99))),
    "too many hits": call("nobody", USER, descriptor("a=b", hits=2**32)),
    "long message": call("nobody", *[descriptor(("k", "v" * 60_000))] * 20),
}

CONFIGURED: dict[str, Step] = {
    **{
        unit: Repeat(call("shop", descriptor(f"{unit}=x")), 3)
        for unit in ("second", "minute", "hour", "day", "week", "month", "year")
    },
    "any value": Repeat(call("shop", descriptor("user=bob")), 4),
    "own value": Repeat(call("shop", USER), 2),
    "unlimited": Repeat(call("shop", descriptor("user=root")), 2),
    "unlimited, many": call("shop", descriptor("user=root"), hits=1_000_000),
    "zero": call("shop", descriptor("user=banned")),
    "nested": Repeat(call("shop", descriptor("plan=free", "route=/login")), 2),
    "nested, any value": Repeat(call("shop", descriptor("plan=free", "route=/x")), 3),
    "nested, three levels": Repeat(
        call("shop", descriptor("plan=free", "route=/x", "method=GET")), 2
    ),
    "level without a limit": call("shop", descriptor("plan=free")),
    "too many levels": call("shop", descriptor("user=ada", "plan=free")),
    "wildcard": Repeat(call("shop", descriptor("path=/files/a")), 2),
    "wildcard, other value": call("shop", descriptor("path=/files/b")),
    "wildcard, shared": call("shop", descriptor("path=/shared/a")),
    "wildcard, shared, other value": call("shop", descriptor("path=/shared/b")),
    "wildcard, unlimited": call("shop", descriptor("path=/site.css")),
    "wildcard, no match": call("shop", descriptor("path=/other")),
    "shadow": Repeat(call("shop", descriptor("quiet=x")), 2),
    "no such key": call("shop", descriptor("nobody=x")),
    "unknown domain": call("elsewhere", USER),
    "domain of rules": Repeat(call("rules", USER), 2),
    "other domain": Repeat(call("infra", descriptor("ip=192.0.2.1")), 2),
    "replaced": Repeat(call("shop", descriptor("big=x"), descriptor("bigger=x")), 2),
    "not replaced": Repeat(call("shop", descriptor("big=y")), 2),
    "several": Repeat(call("shop", descriptor("user=cy"), descriptor("hour=y")), 3),
    "one of them alone": call("shop", descriptor("user=cy")),
    "quota": Repeat(call("shop", descriptor("gold=x"), descriptor("silver=x")), 3),
    "quota alone": Repeat(call("shop", descriptor("gold=y")), 2),
    "hits of the call": call("shop", descriptor("user=dora"), hits=2),
    "hits of the descriptor": call("shop", descriptor("user=dora", hits=2)),
    "zero looks": call("shop", descriptor("user=eve", hits=0)),
    "report beyond the limit": call("shop", descriptor("user=eve", hits=7)),
    "look at the debt": call("shop", descriptor("user=eve", hits=0)),
    "refund": call("shop", descriptor("user=bob", hits=2, is_refund=True)),
    "after the refund": call("shop", descriptor("user=bob")),
    "own limit": Repeat(call("shop", descriptor("user=own", limit=(1, HOUR))), 2),
    "own limit in place of unlimited": Repeat(
        call("shop", descriptor("user=root", limit=(1, 2))), 2
    ),
    "own limit of 0": call("shop", descriptor("user=own", limit=(0, 4))),
    "rule, blocked": Repeat(call("overridden", descriptor("user=blocked")), 2),
    "rule, extra": Repeat(call("overridden", descriptor("user=more")), 4),
    "rule, block that is over": Repeat(call("overridden", descriptor("user=over")), 3),
    "an hour passes": Wait(3600),
    "the debt is worked off": call("shop", descriptor("user=eve", hits=0)),
    "next window": call("shop", USER),
    "another hour passes": Wait(3600),
    "rule, block has ended": Repeat(call("overridden", descriptor("user=blocked")), 3),
    "invalid": call("shop", descriptor("a=b", limit=(1, 0))),
}

OTHER_SETTINGS: dict[str, Step] = {
    "several": Repeat(call("shop", descriptor("user=cy"), descriptor("hour=y")), 4),
    "one of them alone": call("shop", descriptor("user=cy")),
    "more than is left": call("shop", descriptor("user=dora"), hits=5),
    "then one": call("shop", descriptor("user=dora")),
    "metadata": Repeat(call("shop", descriptor("gold=x"), descriptor("silver=x")), 3),
    "metadata of hits": call("shop", descriptor("user=eve", hits=2, limit=(5, HOUR)), hits=3),
    "merged domain": Repeat(call("shop", descriptor("merged=x")), 2),
    "no rules": call("rules", USER),
    "zero looks": call("shop", descriptor("user=fay", hits=0)),
    "no report": Repeat(call("shop", descriptor("user=fay", hits=2)), 2),
    "invalid": call("", USER),
}

J = {"entries": [{"key": "user", "value": "j"}]}
IN_JSON: dict[str, object] = {
    "allowed": {"domain": "token_bucket", "descriptors": [J]},
    "names as in JSON": {"domain": "token_bucket", "descriptors": [J | {"hitsAddend": "2"}]},
    "denied": {"domain": "token_bucket", "hits_addend": 9, "descriptors": [J]},
    "own limit": {
        "domain": "nobody",
        "descriptors": [J | {"limit": {"unit": "HOUR", "requests_per_unit": 3}}],
    },
    "no rule": {"domain": "nobody", "descriptors": [{}]},
    "no domain": {"descriptors": [{}]},
    "no body": "",
    "no JSON": "{",
    "no object": [],
    "unknown field": {"domian": "edge"},
    "wrong type": {"domain": 5},
    "too many descriptors": {"domain": "a", "descriptors": [{}] * 257},
}


TOKEN = {"authorization": "Bearer token-of-the-golden-tests"}
NO_RULES: dict[str, HttpStep] = {
    "rules": get("/admin/v1/rules", TOKEN),
    "put": sent("PUT", "/admin/v1/rules/a", {"key_by": "ip", "limit": "1/s"}, TOKEN),
    "policy": get("/admin/v1/policy", TOKEN),
    "history": get("/admin/v1/history", TOKEN),
    "status": get("/admin/v1/status", TOKEN),
    "block": post("/admin/v1/keys:block", {"rule": "a", "key": "ip=::1", "ttl": 1}, TOKEN),
    "check": post("/v1/check", {"path": "/"}),
    "ready": get("/readyz"),
}
"""What the admin API says where there are no rules to change."""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("ruled")
    with service_process(
        directory, "--rules", "rules.yaml", files={"rules.yaml": RULES}
    ) as service:
        yield service


UNDER_RULES = {
    "algorithms": ALGORITHMS,
    "units": UNITS,
    "descriptors": DESCRIPTORS,
    "amounts": AMOUNTS,
    "modes": MODES,
    "requests": REQUESTS,
    "own_limits": OWN_LIMITS,
    "gateway": GATEWAY,
    "invalid": INVALID,
}
"""In the order of their days."""

DAY = 86_400


@pytest.mark.parametrize("name", UNDER_RULES)
def test_under_rules(ruled: ServiceProcess, name: str) -> None:
    ruled.set_time(list(UNDER_RULES).index(name) * DAY)
    transcript = Transcript(f"rls/{name}")
    record(ruled, UNDER_RULES[name], transcript)
    transcript.check()


def test_calls_of_no_method(ruled: ServiceProcess) -> None:
    transcript = Transcript("rls/no_method")
    for path in (
        "/envoy.service.ratelimit.v3.RateLimitService/Other",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        "/",
    ):
        with pytest.raises(grpc.RpcError) as raised:
            ruled.call(path, b"")
        record_error(path, raised.value, transcript)
    transcript.check()


def test_rules_in_json(ruled: ServiceProcess) -> None:
    ruled.set_time(len(UNDER_RULES) * DAY)
    transcript = Transcript(
        "rls/json", prose=PROSE | {"rawBody"}, masks={"(?s)(?<=in JSON: ).*": "<why>"}
    )
    for name, body in IN_JSON.items():
        content = body if isinstance(body, str) else json.dumps(body)
        transcript.add_response(name, ruled.http.post("/json", content=content))
    transcript.add_response("GET", ruled.http.get("/json"))
    transcript.check()


def test_under_configuration(tmp_path: Path) -> None:
    files = {**YAML, "rules.yaml": ENVOY_RULES}
    flags = ("--envoy-config", "envoy", "--rules", "rules.yaml")
    with service_process(tmp_path, *flags, files=files) as service:
        transcript = Transcript("rls/configured")
        record(service, CONFIGURED, transcript)
        transcript.check()


def test_with_other_settings_and_no_rules(tmp_path: Path) -> None:
    files = {**YAML, "envoy/more.yaml": MERGED}
    flags = (
        *("--envoy-config", "envoy", "--envoy-merge-domains", "true"),
        *("--rls-charge", "always", "--rls-metadata", "true", "--rls-headers", "false"),
        *("--rls-reports", "never"),
    )
    env = {"HEADGATE_ADMIN_TOKEN": "token-of-the-golden-tests"}
    with service_process(tmp_path, *flags, files=files, env=env) as service:
        transcript = Transcript("rls/other_settings")
        record(service, OTHER_SETTINGS, transcript)
        of_admin = Transcript("admin/without_rules", unstable={"place": ".*"})
        record_http(service, NO_RULES, of_admin)
        transcript.check()
        of_admin.check()
