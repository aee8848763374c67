"""What the HTTP API of the service answers: checks, forward auth, standing, reservations."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.http_calls import Call, Step, Wait, get, post, record, spread
from tests.golden.metrics import record_metrics
from tests.golden.transcript import TEXT, Transcript
from tests.support.servers import free_port, release_port
from tests.support.service_process import ServiceProcess, service_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OF_PATHS = {
    "token-bucket": "limit: 2/hour",
    "burst": "limit: 1/minute burst 2",
    "peak": "limit: 2/s peak 4/s for 5s",
    "gcra": "algorithm: gcra, rate_per_sec: 0.3, burst: 2",
    "leaky": "algorithm: leaky_bucket, capacity: 2, leak_rate_per_sec: 0.1",
    "fixed": "limit: 1/minute fixed_window",
    "log": "limit: 1/minute sliding_window_log",
    "counter": "limit: 2/minute sliding_window_counter",
    "stacked": "limits: [2/minute, 3/day fixed_window]",
    "amounts": "limit: 10/hour",
    "costly": """limit: 10/hour,
     cost: {default: 2, endpoints: {"POST /costly": 5}, header: x-cost, max: 8}""",
    "switched-off": 'limit: 1/hour, mode: "off"',
    "shadowed": "limit: 1/hour, mode: shadow",
    "no-headers": 'limit: 1/hour, headers: "off"',
    "brief": "limit: 1/hour, headers: brief",
    "redacted": "limit: 1/hour, headers: redacted",
    "tiers": "limits: {paid: 2/hour, default: 1/hour}",
    "afterwards": "limit: 10/hour, cost: {default: 4, after: {header: x-tokens}}",
    "tokens": "limit: 1000/hour",
}
"""By path, the limits of each user; the rule has the name of the path."""

SPECIAL_PATHS = {
    "slots": "concurrency: {limit: 1, ttl: 30s}",
    "shared-slots": """concurrency:
     {limit: 10, ttl: 30s, shares: {paid: 40%}, share_by: tier, reserve: {critical: 20%}}""",
    "slots-and-rate": "limits: [{algorithm: concurrency, limit: 1, ttl: 30s}, 2/hour]",
    "queue": "shape: {rate: 1/s, queue: 2}",
    "short-queue": "shape: {rate: 20/s, max_wait: 100ms}",
    "turns": "fair: {slots: 1}",
    "retried": "limit: 2/hour, idempotency: {ttl: 1h}",
    "overridden": "limit: 1/hour",
    "tokens": "limit: 1000/hour",
}
"""Those that the service cannot prepare for callers whom it knows: slots, overrides and queues."""


def rules_of(paths: dict[str, str]) -> str:
    return "".join(
        f"  - {{id: {name}, match: {{endpoint: /{name}}}, key_by: user_id,\n     {limits}}}\n"
        for name, limits in paths.items()
    )


RULES = """\
version: 1
identity:
  ip: {trusted_proxies: [10.0.0.0/8]}
rules:
  - {id: two-a, match: {endpoint: /two}, key_by: user_id, limit: 5/hour}
  - {id: two-b, match: {endpoint: /two}, key_by: global, limit: 2/hour}
  - {id: by-ip, match: {endpoint: /ip/**}, key_by: ip, limit: 1/hour}
  - {id: by-key, match: {endpoint: /key}, key_by: api_key, limit: 1/hour}
  - {id: by-host, match: {host: "*.example.com"}, key_by: host, limit: 1/hour}
  - {id: by-cookie, match: {endpoint: /cookie}, key_by: "cookie:sid", limit: 1/hour}
  - {id: by-attribute, match: {endpoint: /attribute, attributes: {plan: [free, trial]}},
     key_by: "attribute:user", limit: 1/hour}
  - {id: posts, match: {endpoint: "/files/*", method: POST}, key_by: [user_id, endpoint],
     limit: 1/hour}
""" + rules_of(OF_PATHS)

SPECIAL_RULES = f"""\
version: 1
priority:
  - {{class: critical, match: {{headers: {{x-critical: "1"}}}}}}
  - {{class: sheddable, match: {{headers: {{x-batch: "1"}}}}}}
overrides:
  - {{rule: overridden, key: user_id=blocked, block: true, until: 2030-01-01T12:00:00Z}}
  - {{rule: overridden, key: user_id=more, extra: 1, until: 2030-01-01T12:00:00Z}}
rules:
{rules_of(SPECIAL_PATHS)}"""


def check(path: str, user: str = "ada", times: int = 1, **more: Any) -> Call:
    """A check of a request of *user*."""
    headers = {"x-user-id": user, **more.pop("headers", {})}
    return post("/v1/check", {"path": path, "headers": headers, **more}, times=times)


def checked(body: Any, headers: dict[str, str] | None = None) -> Call:
    """A check with any body."""
    return post("/v1/check", body, headers)


PROBLEM = {"accept": "application/problem+json"}

CHECKS: dict[str, Step] = {
    "no rule": check("/nothing"),
    "token bucket": check("/token-bucket", times=3),
    "token bucket, problem": post(
        "/v1/check", {"path": "/token-bucket", "headers": {"x-user-id": "ada"}}, PROBLEM
    ),
    "ten minutes pass": Wait(600.25),
    "token bucket later": check("/token-bucket"),
    "peek": check("/token-bucket", user="peeking", peek=True, times=2),
    "burst": check("/burst", times=3),
    "peak": check("/peak", times=2),
    "gcra": check("/gcra", times=3),
    "leaky bucket": check("/leaky", times=3),
    "fixed window": check("/fixed", times=2),
    "sliding log": check("/log", times=2),
    "sliding counter": check("/counter", times=3),
    "stacked": check("/stacked", times=3),
    "45 seconds pass": Wait(45),
    "sliding counter later": check("/counter"),
    "stacked later": check("/stacked", times=2),
    "two rules": check("/two", times=3),
    "two rules, a cost for each": check("/two", user="bob", cost={"two-a": 3, "two-b": 0}),
    "cost": check("/amounts", cost=7),
    "cost beyond what is left": check("/amounts", cost=4),
    "cost of 0": check("/amounts", cost=0),
    "cost beyond the limit": check("/amounts", cost=11),
    "cost for no rule": check("/amounts", user="bob", cost={"nobody": 3}),
    "cost by default": check("/costly"),
    "cost of the endpoint": check("/costly", method="POST"),
    "cost in a header": check("/costly", user="bob", headers={"x-cost": "6"}),
    "cost above the maximum": check("/costly", user="cy", headers={"x-cost": "9999"}),
    "cost that is no number": check("/costly", user="dora", headers={"x-cost": "many"}),
    "cost known afterwards": check("/afterwards", times=3),
}

MODES: dict[str, Step] = {
    "off": check("/switched-off", times=2),
    "shadow": check("/shadowed", times=2),
    "headers off": check("/no-headers", times=2),
    "headers brief": check("/brief", times=2),
    "redacted": check("/redacted", times=2),
    "redacted, problem": post(
        "/v1/check", {"path": "/redacted", "headers": {"x-user-id": "ada"}}, PROBLEM
    ),
}

CALLERS: dict[str, Step] = {
    "tier": check("/tiers", headers={"x-tier": "paid"}, times=3),
    "unknown tier": check("/tiers", user="bob", headers={"x-tier": "gold"}, times=2),
    "ip": checked({"path": "/ip/a", "ip": "192.0.2.1"}),
    "ip again": checked({"path": "/ip/a", "ip": "192.0.2.1"}),
    "ip with a port": checked({"path": "/ip/a", "ip": "192.0.2.1:4711"}),
    "ip mapped": checked({"path": "/ip/a", "ip": "::ffff:192.0.2.1"}),
    "ipv6": checked({"path": "/ip/a", "ip": "2001:db8::1"}),
    "ipv6, the same network": checked({"path": "/ip/a", "ip": "2001:db8::2"}),
    "no ip": checked({"path": "/ip/a"}),
    "no ip again": checked({"path": "/ip/a"}),
    "behind a trusted proxy": checked(
        {"path": "/ip/a", "ip": "10.0.0.1", "headers": {"X-Forwarded-For": "192.0.2.1"}}
    ),
    "behind a stranger": checked(
        {"path": "/ip/a", "ip": "192.0.2.77", "headers": {"x-forwarded-for": "192.0.2.1"}}
    ),
    "headers as pairs": checked(
        {"path": "/token-bucket", "headers": [["X-User-Id", "pairs"], ["a", "b"]]}
    ),
    "headers several times": checked(
        {"path": "/token-bucket", "headers": {"x-user-id": ["several", "other"]}}
    ),
    "api key": checked({"path": "/key", "headers": {"x-api-key": "one"}}),
    "api key again": checked({"path": "/key", "headers": {"x-api-key": "one"}}),
    "no api key": checked({"path": "/key", "ip": "192.0.2.5"}),
    "cookie": checked({"path": "/cookie", "headers": {"cookie": "a=b; sid=s1"}}),
    "cookie again": checked({"path": "/cookie", "headers": {"cookie": "sid=s1"}}),
    "attribute": checked({"path": "/attribute", "attributes": {"plan": "free", "user": "u"}}),
    "attribute again": checked(
        {"path": "/attribute", "attributes": {"plan": "trial", "user": "u"}}
    ),
    "attribute that does not match": checked(
        {"path": "/attribute", "attributes": {"plan": "paid", "user": "u"}}
    ),
    "host": checked({"path": "/", "host": "api.example.com"}),
    "host in the headers": checked({"path": "/", "headers": {"Host": "API.example.com:80"}}),
    "other host": checked({"path": "/", "host": "example.com"}),
    "method": check("/files/a", method="post", times=2),
    "method, other file": check("/files/b", method="POST"),
    "other method": check("/files/a", method="PUT"),
    "path spelled otherwise": check("//FILES/%61?x=1", method="POST"),
    "path that is deeper": check("/files/a/b", method="POST"),
    "unicode": check("/files/ä", user="ädä", method="POST"),
}

INVALID: dict[str, Step] = {
    "no body": checked(""),
    "no JSON": checked("{"),
    "no object": checked("[]"),
    "a text": checked('"x"'),
    "a number": checked("1"),
    "null": checked("null"),
    "a name twice": checked('{"path": "/", "path": "/a"}'),
    "NaN": checked('{"path": "/", "cost": NaN}'),
    "too deep": checked('{"path": ' + "[" * 20_000),
    "too many digits": checked('{"path": "/", "cost": ' + "9" * 5_000 + "}"),
    "no UTF-8": checked(b'{"path": "\xff"}'),
    "no fields": checked({}),
    "unknown fields": checked({"pth": "/", "Path": "/", "zzz": 1, "ttl": 5}),
    "all wrong": checked(
        {
            "method": 5,
            "path": "items",
            "host": None,
            "headers": "x",
            "ip": "203.0.113",
            "attributes": [],
            "cost": -1,
            "peek": "yes",
        }
    ),
    "wrong inside": checked(
        {
            "path": "/",
            "headers": {"a": 1, "": "x", "b": ["c", 2]},
            "attributes": {"a": None},
            "cost": {"per-ip": 1.5, "other": True},
        }
    ),
    "wrong pairs": checked({"path": "/", "headers": [["a"], ["b", 1], "c", ["", "d"]]}),
    "long path": checked({"path": "/" + "x" * 8_192}),
    "long method": checked({"path": "/", "method": "X" * 65}),
    "cost too large": checked({"path": "/", "cost": 10**16}),
    "cost far too large": checked({"path": "/", "cost": 10**60}),
    "21 errors": checked({f"field{n}": n for n in range(22)}),
    "no content type": Call("POST", "/v1/check", {}, '{"path": "/"}'),
    "wrong content type": checked({"path": "/"}, {"content-type": "text/plain"}),
    "other charset": checked({"path": "/"}, {"content-type": "application/json; charset=latin-1"}),
    "charset": checked({"path": "/"}, {"content-type": 'Application/JSON; charset="UTF-8"'}),
    "large body": checked({"path": "/", "x": "y" * 70_000}),
    "GET": get("/v1/check"),
    "DELETE": Call("DELETE", "/v1/check"),
    "OPTIONS": Call("OPTIONS", "/v1/check"),
    "strange method": Call("PROPFIND", "/v1/check"),
    "no such path": get("/v1/nothing"),
    "no such path, HEAD": Call("HEAD", "/v1/nothing"),
    "slash at the end": post("/v1/check/", {"path": "/"}),
    "query": post("/v1/check?x=1", {"path": "/"}),
    "spelled otherwise": post("/v1/%63heck", {"path": "/"}),
    "many headers": Call("GET", "/v1/authorize/a", {f"x-{n}": "1" for n in range(201)}),
}


def authorize(rest: str = "", method: str = "GET", **headers: Any) -> Call:
    """What a gateway asks, so many `times`; `x_real_ip` is the header `x-real-ip`."""
    times = headers.pop("times", 1)
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    return Call(method, f"/v1/authorize{rest}", lines, times=times)


NGINX = {"x_original_uri": "/token-bucket?a=b", "x_original_method": "GET"}
CADDY = {"x_forwarded_uri": "/token-bucket?a=b", "x_forwarded_method": "GET"}

AUTHORIZE: dict[str, Step] = {
    "envoy": authorize("/token-bucket", x_user_id="e", times=3),
    "envoy, problem": authorize(
        "/token-bucket", x_user_id="e", accept="text/html, application/problem+json"
    ),
    "envoy, no rule": authorize("/nothing"),
    "envoy, method": authorize("/files/a", method="POST", x_user_id="e"),
    "envoy, HEAD": authorize("/token-bucket", method="HEAD", x_user_id="e"),
    "envoy, address": authorize("/ip/a", x_forwarded_for="198.51.100.1", times=2),
    "envoy, address of the client": authorize(
        "/ip/a", x_forwarded_for="198.51.100.1, 198.51.100.2"
    ),
    "envoy, trusted proxy": authorize("/ip/a", x_forwarded_for="198.51.100.1, 10.0.0.9"),
    "envoy, nobody": authorize("/ip/a"),
    "envoy, body": Call("POST", "/v1/authorize/nothing", {}, b"anything"),
    "envoy, star": authorize("*", method="OPTIONS"),
    "envoy, query": authorize("/files/q?x=%00", method="POST", x_user_id="e"),
    "envoy, bytes": authorize("/files/%ff", method="POST", x_user_id="e", times=2),
    "envoy, other headers do not count": authorize("/nothing", **NGINX),
    "envoy, a slash too many": authorize("/", **NGINX),
    "envoy, root": authorize("/"),
    "nginx": authorize("?deny=403", **NGINX, x_user_id="n", times=3),
    "nginx, 429": authorize("?deny=429", **NGINX, x_user_id="n"),
    "nginx, nothing said": authorize("", **NGINX, x_user_id="n"),
    "nginx, other status": authorize("?deny=500", **NGINX),
    "nginx, twice": authorize("?deny=403&deny=403", **NGINX),
    "nginx, other parameter": authorize("?refuse=403", **NGINX, x_user_id="n"),
    "nginx, real ip": authorize(
        x_original_uri="/ip/a", x_original_method="GET", x_real_ip="198.51.100.7", times=2
    ),
    "nginx, both addresses": authorize(
        x_original_uri="/ip/a",
        x_original_method="GET",
        x_real_ip="198.51.100.7",
        x_forwarded_for="1.2.3.4, 198.51.100.7",
    ),
    "nginx, addresses differ": authorize(
        x_original_uri="/ip/a",
        x_original_method="GET",
        x_real_ip="198.51.100.7",
        x_forwarded_for="198.51.100.8",
    ),
    "nginx, no method": authorize(x_original_uri="/ip/a"),
    "nginx, no path": authorize(x_original_method="GET"),
    "nginx, path that is none": authorize(x_original_uri="ip", x_original_method="GET"),
    "nginx, method that is none": authorize(x_original_uri="/", x_original_method="X" * 65),
    "caddy": authorize(**CADDY, x_user_id="c", times=3),
    "caddy, host": authorize(
        x_forwarded_uri="/", x_forwarded_method="GET", x_forwarded_host="www.example.com", times=2
    ),
    "caddy, HEAD": authorize(method="HEAD", **CADDY, x_user_id="c"),
    "both": authorize(**CADDY, **NGINX),
    "twice": Call(
        "GET",
        "/v1/authorize",
        [("x-original-uri", "/"), ("x-original-uri", "/a"), ("x-original-method", "GET")],
    ),
    "nothing": authorize(),
    "no such path": authorize("d"),
    "long path": authorize("/" + "x" * 16_384),
    "headers off": authorize("/no-headers", x_user_id="h", times=2),
    "headers brief": authorize("/brief", x_user_id="h", times=2),
    "redacted": authorize("/redacted", x_user_id="h", times=2),
    "shadow": authorize("/shadowed", x_user_id="h", times=2),
}

STANDING: dict[str, Step] = {
    "HEAD": Call("HEAD", "/v1/rate_limit", {"x-user-id": "standing"}),
    "use some": check("/amounts", user="standing", cost=3),
    "use all": check("/tokens", user="standing", cost=1000),
    "of this request, after use": get("/v1/rate_limit", {"x-user-id": "standing"}),
    "of a gateway's client": get("/v1/rate_limit", {"x-forwarded-for": "203.0.113.9"}),
    "described": post("/v1/rate_limit", {"headers": {"x-user-id": "standing", "x-tier": "paid"}}),
    "described by ip": post("/v1/rate_limit", {"ip": "203.0.113.9", "path": "/ip/a"}),
    "wrong": post("/v1/rate_limit", {"cost": 1, "peek": True, "ip": "x"}),
    "no body": post("/v1/rate_limit", ""),
    "PUT": Call("PUT", "/v1/rate_limit"),
}


def reserve(path: str, cost: Any, user: str = "ada", **more: Any) -> Call:
    headers = {"x-user-id": user, **more.pop("headers", {})}
    return post("/v1/reservations", {"path": path, "headers": headers, "cost": cost, **more})


COMMIT = "/v1/reservations/{id}/commit"
CANCEL = Call("DELETE", "/v1/reservations/{id}")

RESERVATIONS: dict[str, Step] = {
    "reserve": reserve("/tokens", {"tokens": 700}),
    "too much is held": reserve("/tokens", {"tokens": 400}),
    "too much is held, problem": post(
        "/v1/reservations",
        {"path": "/tokens", "headers": {"x-user-id": "ada"}, "cost": 400},
        PROBLEM,
    ),
    "commit less": post(COMMIT, {"cost": 420}),
    "commit twice": post(COMMIT, {"cost": 420}),
    "cancel what is settled": CANCEL,
    "after the commit": check("/tokens", peek=True),
    "reserve for all": reserve("/two", 1),
    "commit nothing said": Call("POST", COMMIT),
    "reserve and use more": reserve("/tokens", 100, user="bob"),
    "commit more than there is": post(COMMIT, {"cost": 1500}),
    "in debt": check("/tokens", user="bob"),
    "reserve to cancel": reserve("/tokens", 900, user="cy", ttl=5.5),
    "cancel": CANCEL,
    "cancel twice": CANCEL,
    "commit what is cancelled": post(COMMIT, {"cost": 1}),
    "after the cancellation": check("/tokens", user="cy", peek=True),
    "reserve and forget": reserve("/tokens", 900, user="dora", ttl=10),
    "while it is held": check("/tokens", user="dora", cost=200),
    "11 seconds pass": Wait(11),
    "commit what has expired": post(COMMIT, {"cost": 1}),
    "cancel what has expired": CANCEL,
    "after it has expired": check("/tokens", user="dora", cost=200),
    "reserve by rule": reserve("/tokens", {"tokens": 10}, user="eve"),
    "commit by rule": post(COMMIT, {"cost": {"tokens": 7}}),
    "reserve for another rule": reserve("/tokens", {"nobody": 10}, user="eve"),
    "commit that": post(COMMIT, {"cost": 7}),
    "reserve under no rule": reserve("/nothing", 5),
    "commit under no rule": Call("POST", COMMIT),
    "commit under no rule again": Call("POST", COMMIT),
    "shadow": reserve("/shadowed", 5, user="s"),
    "commit in shadow": post(COMMIT, {"cost": 2}),
    "beyond the limit": reserve("/tokens", 1001, user="fay"),
    "no cost": post("/v1/reservations", {"path": "/tokens"}),
    "cost of 0": reserve("/tokens", 0),
    "cost of 0 by rule": reserve("/tokens", {"tokens": 0}),
    "no path": post("/v1/reservations", {"cost": 1}),
    "ttl too long": reserve("/tokens", 1, ttl=100_000),
    "ttl of 0": reserve("/tokens", 1, ttl=0),
    "peek": reserve("/tokens", 1, peek=True),
    "no JSON": post("/v1/reservations", "x"),
    "GET": get("/v1/reservations"),
    "unknown id": post("/v1/reservations/abcdef/commit", {"cost": 1}),
    "id that is no base64": Call("DELETE", "/v1/reservations/%00"),
    "no id": Call("DELETE", "/v1/reservations/"),
    "forged id": Call("DELETE", "/v1/reservations/" + "A" * 120),
    "reserve once more": reserve("/tokens", 10, user="gus"),
    "commit with a wrong body": post(COMMIT, {"cost": -1, "tokens": 5}),
    "commit a text": post(COMMIT, "text"),
    "commit with another content type": post(COMMIT, "{}", {"content-type": "text/plain"}),
    "commit for other rules": post(COMMIT, {"cost": {"nobody": 5}}),
    "GET of one": get("/v1/reservations/{id}"),
    "PUT of a commit": Call("PUT", COMMIT),
    "end": CANCEL,
}

SPECIAL: dict[str, Step] = {
    "slots": check("/slots", times=2),
    "slots and a rate": check("/slots-and-rate", times=2),
    "shares and reserves": check("/shared-slots", times=6),
    "shares of a tier": check("/shared-slots", headers={"x-tier": "paid"}),
    "reserve for critical": check("/shared-slots", headers={"x-critical": "1"}),
    "half a minute passes": Wait(31),
    "slots are free again": check("/slots"),
    "slots, gateway": authorize("/slots", x_user_id="s", times=2),
    "reserve, gateway": authorize("/shared-slots", x_user_id="r", x_batch="1", times=8),
    "reserve, envoy": spread(authorize("/shared-slots", x_user_id="r")),
    "reserve, nginx": spread(
        authorize(
            "?deny=403",
            x_original_uri="/shared-slots",
            x_original_method="GET",
            x_user_id="r",
        )
    ),
    "reserve, check": spread(check("/shared-slots", user="r")),
    "queue": check("/queue", times=4),
    "queue, peek": check("/queue", peek=True),
    "queue, gateway, at once": authorize("/short-queue", x_user_id="q"),
    "queue, gateway, held": authorize("/short-queue", x_user_id="q"),
    "fair": check("/turns", times=2),
    "idempotency": check("/retried", headers={"idempotency-key": "a"}, times=2),
    "idempotency, other key": check("/retried", headers={"idempotency-key": "b"}),
    "idempotency, third key": check("/retried", headers={"idempotency-key": "c"}),
    "idempotency, first again": check("/retried", headers={"idempotency-key": "a"}),
    "blocked": check("/overridden", user="blocked", times=2),
    "blocked, problem": post(
        "/v1/check", {"path": "/overridden", "headers": {"x-user-id": "blocked"}}, PROBLEM
    ),
    "blocked, gateway": authorize("/overridden", x_user_id="blocked"),
    "blocked, reservation": reserve("/overridden", 1, user="blocked"),
    "extra": check("/overridden", user="more", times=3),
    "standing": get("/v1/rate_limit", {"x-user-id": "more"}),
    "standing, blocked": get("/v1/rate_limit", {"x-user-id": "blocked"}),
    "reserve slots": reserve("/slots", 1, user="rs", ttl=60),
    "no slot left": reserve("/slots", 1, user="rs"),
    "give the slot back": CANCEL,
    "reserve slot and rate": reserve("/slots-and-rate", 1, user="rs"),
    "commit slot and rate": post(COMMIT, {"cost": 1}),
    "reserve in a queue": reserve("/queue", 5, user="rq"),
    "reserve in a queue, delayed": reserve("/queue", 5, user="rq"),
    "reserve in a queue by name": reserve("/queue", {"queue": 1}, user="rq"),
    "two hours pass": Wait(7200),
    "no longer blocked": check("/overridden", user="blocked", times=2),
}

OTHER_SETTINGS: dict[str, Step] = {
    "check": check("/token-bucket", times=3),
    "check, JSON wanted": post(
        "/v1/check",
        {"path": "/token-bucket", "headers": {"x-user-id": "ada"}},
        {"accept": "application/json"},
    ),
    "stacked": check("/stacked"),
    "no headers": check("/no-headers", times=2),
    "gateway is not believed": authorize("/token-bucket", x_user_id="e"),
    "nginx is not believed": authorize("?deny=403", **NGINX),
    "standing": get("/v1/rate_limit", {"x-forwarded-for": "203.0.113.9"}),
    "body too large": checked({"path": "/", "x": "y" * 1_024}),
    "body just right": checked({"path": "/" + "y" * 1_000}),
    "slot": check("/shared"),
    "reserved slot": spread(check("/shared")),
    "reserved slot, critical": check("/shared", headers={"x-critical": "1"}),
    "no slot": spread(check("/shared", headers={"x-critical": "1"})),
}

OUTAGE: dict[str, Step] = {
    "alive": get("/healthz"),
    "ready": get("/readyz"),
    "open": check("/open"),
    "open, all of the share": check("/open", times=2),
    "closed": spread(check("/closed")),
    "closed, problem": spread(
        post("/v1/check", {"path": "/closed", "headers": {"x-user-id": "ada"}}, PROBLEM)
    ),
    "local": check("/local", times=3),
    "open and closed": spread(check("/both")),
    "peek": check("/open", user="bob", peek=True),
    "gateway, open": authorize("/open", x_user_id="c"),
    "gateway, closed": spread(authorize("/closed", x_user_id="c")),
    "nginx, closed": spread(
        authorize("?deny=403", x_original_uri="/closed", x_original_method="GET")
    ),
    "standing": get("/v1/rate_limit", {"x-user-id": "ada"}),
    "reserve": reserve("/open", 1, user="dora"),
    "commit": post(COMMIT, {"cost": 1}),
    "commit again": post(COMMIT, {"cost": 1}),
    "reserve, closed": spread(reserve("/closed", 1)),
    "rate limit service": post("/json", {"domain": "x", "descriptors": [{}]}),
}

OUTAGE_RULES = """\
version: 1
rules:
  - {id: open, match: {endpoint: /open}, key_by: user_id, limit: 2/hour}
  - {id: closed, match: {endpoint: /closed}, key_by: user_id, limit: 2/hour,
     on_store_failure: fail_closed}
  - {id: local, match: {endpoint: /local}, key_by: user_id, limit: 4/hour,
     on_store_failure: {mode: local, share: 50%}}
  - {id: both-open, match: {endpoint: /both}, key_by: user_id, limit: 2/hour}
  - {id: both-closed, match: {endpoint: /both}, key_by: user_id, limit: 2/hour,
     on_store_failure: fail_closed}
"""

DOCUMENTS: dict[str, Step] = {
    "alive": get("/healthz"),
    "alive, HEAD": Call("HEAD", "/healthz"),
    "alive, POST": Call("POST", "/healthz"),
    "ready": get("/readyz"),
    "list": get("/"),
    "list for a browser that takes JSON": get("/", {"accept": "application/json"}),
    "admin is closed": get("/admin/v1/rules"),
    "admin is closed, with a token": get("/admin/v1/rules", {"authorization": "Bearer x"}),
    "admin alone": get("/admin"),
    "dashboard file that is none": get("/dashboard/nothing.js"),
}

UNSTABLE = {"$.id": r"[\w-]{60,600}", "location": r"/v1/reservations/[\w-]{60,600}"}
CORPORA = {
    "checks": CHECKS,
    "callers": CALLERS,
    "modes": MODES,
    "invalid": INVALID,
    "authorize": AUTHORIZE,
    "standing": STANDING,
    "reservations": RESERVATIONS,
    "documents": DOCUMENTS,
}
"""In the order of their days."""

DAY = 86_400


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("service")
    with service_process(
        directory, "--rules", "rules.yaml", files={"rules.yaml": RULES}
    ) as running:
        yield running


@pytest.mark.parametrize("name", CORPORA)
def test_http(service: ServiceProcess, name: str) -> None:
    service.set_time(list(CORPORA).index(name) * DAY)
    transcript = Transcript(f"http/{name}", unstable=UNSTABLE)
    record(service, CORPORA[name], transcript)
    transcript.check()


def test_special_rules(tmp_path: Path) -> None:
    files = {"rules.yaml": SPECIAL_RULES}
    with service_process(tmp_path, "--rules", "rules.yaml", files=files) as running:
        transcript = Transcript("http/special_rules", unstable=UNSTABLE)
        record(running, SPECIAL, transcript)
        transcript.check()


def test_other_settings(tmp_path: Path) -> None:
    shared = """\
  - {id: shared, match: {endpoint: /shared}, key_by: global,
     concurrency: {limit: 2, reserve: {critical: 50%}}}
priority: [{class: critical, match: {headers: {x-critical: "1"}}}]
"""
    flags = (
        *("--rules", "rules.yaml", "--gateways", "off", "--max-body", "1024"),
        *("--responses-x-ratelimit", "false", "--responses-draft03", "true"),
        *("--responses-problem", "true", "--responses-shed-status", "529"),
    )
    with service_process(tmp_path, *flags, files={"rules.yaml": RULES + shared}) as running:
        transcript = Transcript("http/other_settings", unstable=UNSTABLE)
        record(running, OTHER_SETTINGS, transcript)
        transcript.check()


def test_without_a_store(tmp_path: Path) -> None:
    """Two workers, of which one answers: the one that has the only connection."""
    port = free_port()
    store = f"redis://127.0.0.1:{port}/0"
    flags = ("--rules", "rules.yaml", "--store", store, "--workers", "2")
    try:
        files = {"rules.yaml": OUTAGE_RULES}
        with service_process(tmp_path, *flags, files=files, has_store=False) as running:
            transcript = Transcript("http/without_a_store", unstable=UNSTABLE)
            record(running, OUTAGE, transcript)
            transcript.check()
            metrics = Transcript("reports/workers")
            text = running.http.get("/metrics").text
            record_metrics("metrics", text, metrics, has_values=False)
            metrics.check()
    finally:
        release_port(port)


RAW = {
    "no request": b"hello\r\n\r\n",
    "no path": b"GET\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "HTTP/1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
    "HTTP/2 without TLS": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n",
    "wrong header": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
    "wrong length": b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
    "large head": b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 33_000 + b"\r\n\r\n",
    "websocket": (
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
        b"connection: upgrade, close\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ),
    "chunks": (
        b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        b'8\r\n{"path":\r\n4\r\n"/"}\r\n0\r\n\r\n'
    ),
    "pipelined": (
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    ),
}


def test_requests_as_bytes(service: ServiceProcess) -> None:
    """What becomes of requests that no client of HTTP would make."""
    transcript = Transcript("http/as_bytes")
    for name, request in RAW.items():
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        found = re.sub(r"date: [^\r]+GMT", "date: <date>", answer.decode("latin-1"))
        head, _, body = found.partition("\r\n\r\n")
        if "text/plain" in head:
            transcript.add_text(name, "body", body)
            found = re.sub(r"(?<=content-length: )\d+", "<length>", f"{head}\r\n\r\n{TEXT}")
        transcript.add(name, found.split("\r\n"))
    transcript.check()
