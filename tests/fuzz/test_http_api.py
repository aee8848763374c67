"""Any request to the HTTP API has one response, with a status that OpenAPI lists for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.http.openapi import PATHS
from tests.support.fuzzing import anything, bounded, fuzz_count, paths_in, replaced
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
TARGETS = (
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
    lambda path, rest: path + rest, st.sampled_from(TARGETS), st.just(b"") | st.binary(max_size=60)
)
peers = st.sampled_from(["127.0.0.1", "::1", "203.0.113.7", "", "junk", None])
methods = st.sampled_from(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "X", ""])


GENERAL = {400, 403, 404, 405, 414, 431}
"""The statuses of requests that reach no operation."""


def documented(method: str, path: str) -> set[int]:
    """The statuses that the OpenAPI document lists for *method* of *path*."""
    name = path
    if path.startswith("/v1/authorize"):  # of any method
        name, method = "/v1/authorize", "GET"
    elif path.startswith("/v1/reservations/"):
        is_commit = path.endswith("/commit")
        name = "/v1/reservations/{id}/commit" if is_commit else "/v1/reservations/{id}"
    operation = PATHS.get(name, {}).get("get" if method == "HEAD" else method.lower(), {})
    return GENERAL | {int(status) for status in operation.get("responses", {})}


def answered(scope: dict[str, Any], *chunks: bytes) -> None:
    with bounded():
        answer = asyncio.run(answer_of(APP, scope, *chunks))
    assert answer.status in documented(scope["method"], scope["path"]), answer
    kind = answer.headers.get("content-type")
    if answer.body and kind is not None and kind.endswith("json"):
        json.loads(answer.body)
    if kind == "application/problem+json" and answer.body:
        assert answer.json["status"] == answer.status


@settings(max_examples=fuzz_count(200))
@given(methods, paths, headers, peers, st.binary(max_size=30), st.lists(bodies, max_size=3))
@example("GET", b"/v1/authorize/\xff\xfe%", [("host", "\xff")], "127.0.0.1", b"", [])
@example("X", b"/v1/authorize/", [], "127.0.0.1", b"", [])
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


@settings(max_examples=fuzz_count(200))
@given(st.sampled_from(["/v1/check", "/v1/rate_limit", "/v1/reservations"]), bodies)
@example("/v1/check", b'{"path": "/\\ud800", "headers": {"\\ud800": "\\udfff"}, "host": "\\ud800"}')
@example("/v1/check", b'{"path": "/api/\\u0000", "attributes": {"": "\\u0000"}}')
@example("/v1/reservations", b'{"path": "/api/\\ud800", "cost": {"\\ud800": 1}}')
def test_any_body_has_one_response(path: str, body: bytes) -> None:
    answered(scope_of("POST", path, [("content-type", "application/json")]), body)


CHECK: Any = {
    "method": "POST",
    "path": "/api/a",
    "host": "x",
    "ip": "203.0.113.7",
    "headers": {"cookie": "a=1", "x-b": ["1", "2"]},
    "attributes": {"user": "ada"},
    "cost": 1,
}


@settings(max_examples=fuzz_count(200))
@given(st.sampled_from(paths_in(CHECK)), anything, st.sampled_from(["check", "reservations"]))
def test_a_check_with_anything_anywhere_has_one_response(
    path: tuple[Any, ...], value: Any, operation: str
) -> None:
    body = json.dumps(replaced(CHECK, path, value)).encode()
    answered(scope_of("POST", f"/v1/{operation}", [("content-type", "application/json")]), body)


@given(st.text(max_size=100) | st.binary(max_size=100).map(lambda raw: raw.hex()), st.booleans())
def test_any_id_of_a_reservation_has_one_response(name: str, commit: bool) -> None:
    path = f"/v1/reservations/{name}".encode("utf-8", "surrogatepass")
    if commit:
        answered(scope_of("POST", path + b"/commit", ()))
    else:
        answered(scope_of("DELETE", path, ()))
