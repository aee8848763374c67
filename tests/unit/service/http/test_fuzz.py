"""Whatever comes: one response, and no exception."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.http_app import POLICY, answer_of, app_of, scope_of

APP = app_of(POLICY)

FIELDS = ("method", "path", "host", "headers", "ip", "attributes", "cost", "peek", "ttl", "x")
NAMES = (
    "host",
    "x-forwarded-for",
    "x-real-ip",
    "x-original-uri",
    "x-original-method",
    "x-forwarded-uri",
    "x-forwarded-method",
    "x-forwarded-host",
    "content-type",
    "content-length",
    "accept",
    "cookie",
)
PATHS = (
    b"/v1/check",
    b"/v1/authorize",
    b"/v1/authorize/",
    b"/v1/rate_limit",
    b"/v1/reservations",
    b"/v1/reservations/",
    b"/v1/reservations//commit",
    b"/healthz",
    b"/readyz",
    b"/",
    b"",
    b"*",
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
bodies = (
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(FIELDS) | st.text(), anything).map(
        lambda found: json.dumps(found).encode()
    )
    | anything.map(lambda found: json.dumps(found).encode())
)
values = st.sampled_from(
    ["application/json", "/api/a", "POST", "1.2.3.4", "1.2.3.4, 5.6.7.8", "0", ""]
) | st.text(st.characters(max_codepoint=255), max_size=40)
headers = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8)
paths = st.builds(
    lambda path, rest: path + rest, st.sampled_from(PATHS), st.just(b"") | st.binary(max_size=60)
)
peers = st.sampled_from(["127.0.0.1", "::1", "203.0.113.7", "", "junk", None])
methods = st.sampled_from(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "X", ""])


def answered(scope: dict[str, Any], *chunks: bytes) -> None:
    answer = asyncio.run(answer_of(APP, scope, *chunks))
    assert 200 <= answer.status <= 503
    assert answer.status != 500
    kind = answer.headers.get("content-type")
    if answer.body and kind is not None and kind.endswith("json"):
        json.loads(answer.body)
    if kind == "application/problem+json" and answer.body:
        assert answer.json["status"] == answer.status


@given(methods, paths, headers, peers, st.binary(max_size=30), st.lists(bodies, max_size=3))
@example("GET", b"/v1/authorize/\xff\xfe%", [("host", "\xff")], "127.0.0.1", b"", [])
@example("GET", b"/v1/authorize", [("x-original-uri", "/api/a")], "127.0.0.1", b"\x80", [])
def test_any_request_has_one_response(
    method: str,
    path: bytes,
    lines: list[tuple[str, str]],
    peer: str | None,
    query: bytes,
    chunks: list[bytes],
) -> None:
    answered(scope_of(method, path, lines, peer=peer, query=query), *chunks)


@given(st.sampled_from(["/v1/check", "/v1/rate_limit", "/v1/reservations"]), bodies)
@example("/v1/check", b'{"path": "/\\ud800", "headers": {"\\ud800": "\\udfff"}, "host": "\\ud800"}')
@example("/v1/check", b'{"path": "/api/\\u0000", "attributes": {"": "\\u0000"}}')
@example("/v1/reservations", b'{"path": "/api/\\ud800", "cost": {"\\ud800": 1}}')
def test_any_body_has_one_response(path: str, body: bytes) -> None:
    answered(scope_of("POST", path, [("content-type", "application/json")]), body)


@given(st.text(max_size=100) | st.binary(max_size=100).map(lambda raw: raw.hex()), st.booleans())
def test_any_id_of_a_reservation_has_one_response(name: str, commit: bool) -> None:
    path = f"/v1/reservations/{name}".encode("utf-8", "surrogatepass")
    if commit:
        answered(scope_of("POST", path + b"/commit", ()))
    else:
        answered(scope_of("DELETE", path, ()))
