"""Inputs of the largest size that is read, made to cost the most: work stays in proportion.

Each is bounded by processor time that it would exceed a hundred times if work grew with the square
of its size.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headgate.clients.signals import MAX_FIELD_LENGTH, ResponseInfo, read_signal
from headgate.engine.request import Request
from headgate.errors import HeadgateError
from headgate.limits.notation import LONGEST_TEXT, parse_limits
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.document import MAX_BYTES
from headgate.policy.envoy_config.conversion import convert
from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.policy.loader import examine_policy, read_policy
from headgate.service.grpc.method import CallError
from headgate.service.rls import RlsOptions
from headgate.simulator.traces import open_trace
from headgate.simulator.traces.trace import LONGEST_LINE
from tests.support.fuzzing import LARGEST_CPU_SECONDS, bounded
from tests.support.http_app import app_of, ask, post
from tests.support.rls_client import Asker, desc, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLICY = """
version: 1
identity: {sid: {cookie: sid}}
rules:
  - {id: all, key_by: global, limit: 5000000/minute}
  - {id: paths, match: {endpoint: /a/**}, key_by: [endpoint, method, host], limit: 30000/minute}
  - {id: wild, match: {endpoint: "/**/x/**/y/**/z"}, key_by: [endpoint, sid], limit: 30000/minute}
  - {id: address, key_by: [ip, "header:x"], limit: 30000/minute sliding_window_log}
"""
ENVOY = """
domain: legacy
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 200000}}
  - {key: a, value: "b*", rate_limit: {unit: minute, requests_per_unit: 200000}}
  - {key: c, value: "*", descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 9}}]}
"""


def repeated(first: str, line: Callable[[int], str], last: str = "") -> str:
    """*first*, as many lines as fit into a document, and *last*."""
    text, number = [first], 0
    left = MAX_BYTES - len(first) - len(last)
    while (left := left - len(line(number))) > 0:
        text.append(line(number))
        number += 1
    return "".join(text) + last


RULES = "version: 1\nrules:\n"
POLICIES = {
    "brackets": "[" * MAX_BYTES,
    "dashes": "- " * (MAX_BYTES // 2),
    "quotes": '"' * MAX_BYTES,
    "blank lines": "\n" * MAX_BYTES,
    "anchors": repeated("", lambda n: f"&a{n} x\n"),
    "unknown fields": repeated("version: 1\n", lambda n: f"k{n}: 1\n"),
    "one field again and again": repeated("version: 1\n", lambda _: "a: 1\n"),
    "rules": repeated(RULES, lambda n: f"- {{id: a{n}, key_by: ip, limit: {n + 1}/s}}\n"),
    "equal ids": repeated(RULES, lambda n: f"- {{id: a, key_by: ip, limit: {n + 1}/s}}\n"),
    "wrong rules": repeated(RULES, lambda n: f"- {{id: a{n}, key_by: nobody, limit: {n}/x}}\n"),
    "lost candidates": repeated(
        RULES, lambda n: f"- {{id: a{n}, candidate_of: z{n}, key_by: ip, limit: 1/s}}\n"
    ),
    "endpoints": repeated(
        f"{RULES}- {{id: a, key_by: ip, limit: 1/s, match: {{endpoint: [",
        lambda n: f'"/a{n}/**/b",',
        "]}}\n",
    ),
    "one long pattern": repeated(
        f'{RULES}- {{id: a, key_by: ip, limit: 1/s, match: {{endpoint: "/',
        lambda _: "**/",
        '"}}\n',
    ),
    "keys": repeated(
        f"{RULES}- {{id: a, limit: 1/s, key_by: [", lambda n: f'"header:x{n}",', "]}\n"
    ),
    "lookups in a chain": repeated(
        "version: 1\nrules: []\nidentity:\n", lambda n: f"  a{n}: {{lookup: a{n + 1}}}\n"
    ),
    "overrides": repeated(
        f"{RULES}- {{id: a, key_by: ip, limit: 1/s}}\noverrides:\n",
        lambda n: f"- {{rule: a{n % 2 or ''}, key: k{n}, limit: 2/s}}\n",
    ),
    "a long number": repeated('{"version": ', lambda _: "9", "}"),
    "deep objects": '{"a":' * (MAX_BYTES // 6),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy(name: str) -> None:
    with bounded(LARGEST_CPU_SECONDS):
        examine_policy(POLICIES[name])


def test_aliases_that_multiply_are_refused() -> None:
    lines = [
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]" for n in range(9)
    ]
    with bounded():
        examined = examine_policy("\n".join(["version: 1", "a: &a [1]", *lines]))
    assert "too large" in str(examined.problems[0])


_LIMIT = "rate_limit: {unit: day, requests_per_unit: 1"
ENVOY_FILES = {
    "descriptors": repeated(
        "domain: a\ndescriptors:\n", lambda n: f"- {{key: a{n}, {_LIMIT}}}}}\n"
    ),
    "patterns": repeated(
        "domain: a\ndescriptors:\n", lambda n: f'- {{key: a, value: "b{n}*", {_LIMIT}}}}}\n'
    ),
    "names": repeated(
        "domain: a\ndescriptors:\n",
        lambda n: f"- {{key: a{n}, {_LIMIT}, name: n{n}, replaces: [{{name: z{n}}}]}}}}\n",
    ),
    "equal ones": repeated("domain: a\ndescriptors:\n", lambda _: "- {key: a, value: b}\n"),
}


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("name", ENVOY_FILES)
def test_a_file_of_envoyproxy_ratelimit(name: str, share: int) -> None:
    text = ENVOY_FILES[name]
    text = text[: text.rindex("\n", 0, len(text) // share) + 1]
    with bounded(LARGEST_CPU_SECONDS), suppress(HeadgateError):
        convert(read_envoy_config([("a.yaml", text)]))


@pytest.mark.parametrize("piece", ["1/s;", "burst ", "9", "1_", "-", " ", "x-", "1/s peak "])
def test_a_limit(piece: str) -> None:
    with bounded(), suppress(HeadgateError):
        parse_limits("1/s " + piece * ((LONGEST_TEXT - 4) // len(piece)))


HEADERS = ('"\\', '"a\\"', ';a="', "1h", "9.", '"a";r=0,', ',"', "(", "0,", " ", '"a"', ";", "Mon,")


@pytest.mark.parametrize("piece", HEADERS)
def test_a_header_of_a_server(piece: str) -> None:
    value = (piece * MAX_FIELD_LENGTH)[:MAX_FIELD_LENGTH]
    with bounded():
        for name in ("retry-after", "ratelimit", "ratelimit-policy", "ratelimit-reset", "date"):
            fields = {"ratelimit-remaining": value, name: value}
            read_signal(ResponseInfo(429, fields.get), 0)


PATHS = ("x/y/", "a/../", "%2e%2e/", "%25", "//", "%2f..", ";a=b/", "é".encode().decode("latin-1"))


@pytest.mark.parametrize("piece", PATHS)
@pytest.mark.parametrize("domain", ["edge", "headgate"])
def test_a_path(domain: str, piece: str) -> None:
    options = RlsOptions()
    path = "/a/" + piece * (options.longest_value // len(piece) - 2)
    asker, app = Asker(POLICY), app_of(POLICY)
    message = request(domain, desc(f"path={path}", f":path={path}", "remote_address=192.0.2.1"))
    with bounded():
        for _ in range(3):
            asker.calls.should_rate_limit(message)
        for size in (8_000, 60_000):
            ask(app, "GET", b"/v1/authorize" + path[:size].encode("latin-1"))
            post(app, "/v1/check", {"path": path[:size], "ip": "192.0.2.1"})


@pytest.mark.parametrize(
    ("name", "piece"),
    [("cookie", "sid=%62;"), ("x-forwarded-for", "1.2.3.4,"), ("x", "\udcff"), ("cookie", "=; ")],
)
def test_a_header_of_a_request(name: str, piece: str) -> None:
    value = piece * (RlsOptions().longest_value // len(piece))
    asker, app = Asker(POLICY), app_of(POLICY)
    message = request("headgate", desc("path=/a", (name, value.replace("\udcff", "y"))))
    with bounded():
        for _ in range(3):
            asker.calls.should_rate_limit(message)
        post(app, "/v1/check", {"path": "/a", "ip": "::1", "headers": {name: value[:60_000]}})


CONDITIONS = """
version: 1
rules:
  - {id: cookie, match: {cookies: {plan: free}}, key_by: global, limit: 30000/minute}
  - {id: header, match: {headers: {x-plan: free}}, key_by: global, limit: 30000/minute}
  - {id: session, key_by: "cookie:plan", limit: 30000/minute}
"""
LINES: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "cookies": lambda: [("cookie", ";".join(f"plan={n}" for n in range(100_000)))],
    "encoded cookies": lambda: [("cookie", ", ".join(f"pl%61n=%{n}" for n in range(60_000)))],
    "a long cookie": lambda: [("cookie", "plan=" + "\\" * 500_000)],
    "values": lambda: [("x-plan", ",".join(map(str, range(150_000))))],
    "equal lines": lambda: [("x-plan", "paid")] * 100_000,
    "lines": lambda: [("x-plan", str(n)) for n in range(100_000)],
}


@pytest.mark.parametrize("name", LINES)
def test_headers_that_rules_match_by(name: str) -> None:
    policy, lines = CompiledPolicy(read_policy(CONDITIONS)), tuple(LINES[name]())
    with bounded():
        policy.plan(Request(headers=lines))


@pytest.mark.parametrize("domain", ["legacy", "edge", "headgate"])
@pytest.mark.parametrize(("descriptors", "entries"), [(256, 1), (1, 1024), (256, 200), (257, 1)])
def test_a_rate_limit_call(domain: str, descriptors: int, entries: int) -> None:
    asker = Asker(POLICY, ENVOY)
    several = [
        desc(*[f"{'a' if n % 2 else 'c'}=b{m}" for n in range(entries)]) for m in range(descriptors)
    ]
    with bounded(), suppress(CallError):
        asker.calls.should_rate_limit(request(domain, *several))


BODIES: dict[str, Any] = {
    "headers": {"path": "/", "headers": {f"h{n}": "v" for n in range(4000)}},
    "lines": {"path": "/", "headers": {"x": ["v"] * 9000}},
    "attributes": {"path": "/", "attributes": {f"h{n}": "v" for n in range(4000)}},
    "costs": {"path": "/", "cost": {f"h{n}": 1 for n in range(4000)}},
    "unknown fields": {f"h{n}": 1 for n in range(5000)},
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("operation", ["check", "reservations", "rate_limit"])
def test_a_body(name: str, operation: str) -> None:
    body = json.dumps(BODIES[name]).encode()
    with bounded():
        post(app_of(POLICY), f"/v1/{operation}", body[:65_000])
        post(app_of(POLICY), f"/v1/{operation}", body)
        post(app_of(POLICY), f"/v1/{operation}", b'{"a":' * 13_000)


LINE = b'1.2.3.4 - - [16/Nov/2026:19:06:40 +0000] "GET /a HTTP/1.1" 200 612 "r" "a"'
NGINX = (b'"', b"a ", b"[", b"[16/Nov/2026:19:06:40 +0000] ", b'\\"', b"\\", b" 1", b"1", b' "a"')
ENVOY_LOG = (b"[", b'[a] "', b'[2] "" 200 x ', b'[2] "" 1', b"[]", b'"" ')


@pytest.mark.parametrize(
    ("kind", "first", "piece"),
    [
        *[("nginx", first, piece) for first in (b"", LINE, LINE + b' "') for piece in NGINX],
        *[("envoy", b"", piece) for piece in ENVOY_LOG],
        *[("jsonl", b'{"time":1,"x":', piece) for piece in (b"[", b'{"a":', b"9", b'"\\u00')],
        *[("csv", b"time,path\n1,", piece) for piece in (b'"', b",", b'""', b"\0")],
    ],
)
def test_a_line_of_a_trace(kind: str, first: bytes, piece: bytes, tmp_path: Path) -> None:
    good = {"csv": b"time,path\n1,/\n", "jsonl": b'{"time":1}\n'}.get(kind, LINE + b"\n")
    line = first + piece * ((LONGEST_LINE - len(first)) // len(piece))
    (tmp_path / "trace").write_bytes(good + line + b"\n")
    with bounded(), suppress(HeadgateError):
        trace = open_trace(str(tmp_path / "trace"), policies=[read_policy(POLICY)], kind=kind)
        assert sum(len(batch) for batch in trace.batches()) <= 2
