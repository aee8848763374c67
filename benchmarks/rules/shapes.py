"""Policies of one kind of rule each, as many rules as wanted, and requests for some of them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from headgate.engine.request import Request
from headgate.limits import TokenBucket
from headgate.policy.model import Match, Policy, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.limits import Limit

LIMITS: Mapping[str | None, tuple[Limit, ...]] = MappingProxyType({None: (TokenBucket(1, 1),)})

HEADERS = (
    ("Host", "api.example.com"),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0"),
    ("Accept", "application/json"),
    ("Accept-Language", "en-GB,en;q=0.5"),
    ("Accept-Encoding", "gzip, deflate, br"),
    ("X-Api-Key", "key-123456"),
    ("Content-Type", "application/json"),
    ("Cookie", "session=0123456789abcdef; theme=dark"),
    ("X-Request-Id", "7f3c1f60-0d3b-4a53-9c1e-6c4a1f1f8f11"),
    ("X-Forwarded-For", "203.0.113.7"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of rule: what the rule with a number asks for, and a request that is for it alone."""

    name: str
    match: Callable[[int], Match]
    request: Callable[[int], Request]

    def policy(self, rules: int) -> Policy:
        return Policy(
            tuple(
                Rule(f"rule-{number}", self.match(number), ("ip",), LIMITS)
                for number in range(rules)
            )
        )

    def requests(self, numbers: Iterable[int]) -> list[Request]:
        return [self.request(number) for number in numbers]


def _get(path: str, *, host: str = "api.example.com", attributes: str = "") -> Request:
    known = {"plan": "pro", "org": attributes} if attributes else {}
    return Request("GET", path, host, HEADERS, "203.0.113.7", known)


def _with_header(name: str, value: str) -> Request:
    return Request("GET", "/api/v1/users", "api.example.com", (*HEADERS, (name, value)))


def _mixed_match(number: int) -> Match:
    return SHAPES[number % len(SHAPES)].match(number)


def _mixed_request(number: int) -> Request:
    return SHAPES[number % len(SHAPES)].request(number)


SHAPES = (
    Shape(
        "literal paths: /api/v1/item-N/show",
        lambda n: Match(endpoints=(f"/api/v1/item-{n}/show",), methods=("GET", "POST")),
        lambda n: _get(f"/api/v1/item-{n}/show"),
    ),
    Shape(
        "one segment: /api/item-N/*/show",
        lambda n: Match(endpoints=(f"/api/item-{n}/*/show",)),
        lambda n: _get(f"/api/item-{n}/42/show"),
    ),
    Shape(
        "one segment first: /*/item-N",
        lambda n: Match(endpoints=(f"/*/item-{n}",)),
        lambda n: _get(f"/v1/item-{n}"),
    ),
    Shape(
        "prefixes: /app-N/**",
        lambda n: Match(endpoints=(f"/app-{n}/**",)),
        lambda n: _get(f"/app-{n}/v1/users/42"),
    ),
    Shape(
        "suffixes: /**/item-N/edit",
        lambda n: Match(endpoints=(f"/**/item-{n}/edit",)),
        lambda n: _get(f"/v1/users/item-{n}/edit"),
    ),
    Shape(
        "hosts: tenant-N.example.com",
        lambda n: Match(hosts=(f"tenant-{n}.example.com",)),
        lambda n: _get("/api/v1/users", host=f"tenant-{n}.example.com"),
    ),
    Shape(
        "hosts below: *.tenant-N.example.com",
        lambda n: Match(hosts=(f"*.tenant-{n}.example.com",)),
        lambda n: _get("/api/v1/users", host=f"www.tenant-{n}.example.com"),
    ),
    Shape(
        "one path, attribute org=N",
        lambda n: Match(endpoints=("/api/**",), attributes=(("org", (f"org-{n}",)),)),
        lambda n: _get("/api/v1/users", attributes=f"org-{n}"),
    ),
    Shape(
        "one header, value N",
        lambda n: Match(headers=(("x-org", (f"org-{n}",)),)),
        lambda n: _with_header("X-Org", f"org-{n}"),
    ),
    Shape(
        "headers of different names: x-N",
        lambda n: Match(headers=((f"x-{n}", None),)),
        lambda n: _with_header(f"X-{n}", "1"),
    ),
)

MIXED = Shape("all of these, mixed", _mixed_match, _mixed_request)

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "plain": "/api/v1/users/42/orders",
        "in capitals": "/API/v1/Users/42/Orders",
        "slash at the end": "/api/v1/users/42/orders/",
        "encoded letters": "/api/v1/us%65rs/42/orders%20new",
        "not ASCII": "/api/v1/users/caf%C3%A9/orders",
        "dots": "/api/v1/../v1/users/42/orders",
        "all kinds of noise": "/api//v1/..%2fv1;x=1/%75sers\\42/orders%00",
        "8 KiB of segments": "/a" * 4096,
        "8 KiB of noise": "/a/..;%2f\\." * 745,
    }
)
