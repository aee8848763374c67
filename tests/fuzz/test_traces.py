"""Any file is a trace that can be replayed, or refused with what is wrong."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.policy.loader import read_policy
from headgate.simulator.replay import replay
from headgate.simulator.traces import FORMATS, TraceError, open_trace
from tests.support.fuzzing import Changes, anything, bounded, changed, changes, fuzz_count

POLICY = read_policy("""
version: 1
identity: {api_key: {header: x-api-key}}
rules:
  - {id: a, match: {endpoint: "/a/**"}, key_by: [ip, "header:user-agent"], limit: 2/s}
  - {id: b, key_by: [api_key, method], limit: 5/minute strict, cost: {header: x-cost, max: 9}}
  - {id: c, key_by: ip, concurrency: {limit: 2}}
""")
NGINX = (
    b'192.0.2.1 - - [16/Nov/2026:19:06:40 +0000] "GET /a/b?c HTTP/1.1" 200 612 "-" "agent" 0.125\n'
    b'192.0.2.2 - ann [16/Nov/2026:19:06:41 -0700] "POST /login HTTP/1.1" 429 0 "x\\"y" "a g"\n'
)
ENVOY = (
    b'[2026-11-16T19:06:40.310Z] "GET /a HTTP/1.1" 200 - 0 5 9 8 "1.2.3.4,::1" "agent" "id" "h"\n'
    b'[2026-11-16T19:06:40.311Z] "- - HTTP/1.1" 0 DC 0 5 - - "-" "-" "-" "-"\n'
)
LINES = (
    b'{"time": 1763320000.5, "path": "/a", "ip": "::1", "headers": {"X-Cost": 2}}\n'
    b'{"ts": "2026-11-16T19:06:40Z", "request": "GET /a", "duration": 5, "x-api-key": "k"}\n'
)
TABLE = (
    b"time;method;path;ip;x-api-key;cost;took_ms\n"
    b'1763320000;GET;"/a;b";192.0.2.1;key;2;15\n1763320000123;POST;/;-;;;\n'
)
GOOD = (NGINX, ENVOY, LINES, TABLE)
PIECES = st.binary(max_size=3) | st.sampled_from(
    (
        *(b"\n", b"\r\n", b'"', b"\\", b"[", b"]", b",", b";", b"\t", b"-", b" ", b"\0", b"\xff"),
        *(
            b"1e400",
            b"nan",
            b"-1",
            b"9" * 400,
            b"32503680000",
            b"99/Feb/0000",
            b"+99:99",
            b"{",
            b"}",
        ),
        *(b"\\ud800", b"null", b"[]", b'"time":', b"::1", b"[::1]:80", b"http://x", b"?", b"GET "),
    )
)


def check(data: bytes, kind: str | None) -> None:
    with tempfile.NamedTemporaryFile() as file, bounded():
        Path(file.name).write_bytes(data)
        try:
            trace = open_trace(file.name, policies=[POLICY], kind=kind)
            outcome = replay(POLICY, trace)
        except TraceError as error:
            assert str(error)
            return
        assert outcome.requests > 0
        assert all(note.isprintable() for note in trace.notes)


kinds = st.none() | st.sampled_from(FORMATS)


@settings(max_examples=fuzz_count(200))
@given(
    st.sampled_from(GOOD).flatmap(
        lambda good: st.tuples(st.just(good), changes(len(good), PIECES))
    ),
    kinds,
)
def test_a_damaged_trace_is_replayed_or_refused(
    damaged: tuple[bytes, Changes], kind: str | None
) -> None:
    check(changed(*damaged), kind)


@settings(max_examples=fuzz_count(100))
@given(st.binary(max_size=100), kinds)
@example(b"", None)
@example(b"time\n1\n", "csv")
@example(b"\xef\xbb\xbftime,path\r\n1,/\r\n", None)
def test_noise_is_replayed_or_refused(noise: bytes, kind: str | None) -> None:
    check(noise, kind)


@settings(max_examples=fuzz_count(200))
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["time", "path", "ip", "method", "headers", "cost", "took", "x-cost"]),
            anything
            | st.floats()
            | st.sampled_from([1_763_320_000, "2026-11-16T19:06:40Z", "/a/b"]),
        ),
        max_size=4,
    )
)
@example([{"time": 0, "path": "/a", "took": 1_763_320_000}, {"time": 1_763_320_000, "path": "/a"}])
@example([{"time": 1, "path": "/\ud800", "headers": {"user-agent": "\udfff"}, "ip": "\ud800"}])
def test_any_objects_are_replayed_or_refused(objects: list[dict[str, Any]]) -> None:
    check(LINES + b"".join(json.dumps(one).encode() + b"\n" for one in objects), "jsonl")


@settings(max_examples=fuzz_count(60))
@given(
    st.sampled_from([gzip.compress, bz2.compress, lzma.compress]),
    st.integers(0, 400),
    st.binary(max_size=4),
)
def test_a_damaged_archive_is_replayed_or_refused(compress: Any, at: int, piece: bytes) -> None:
    packed = compress(NGINX * 20)
    check(packed[:at] + piece + packed[at + len(piece) :], None)
    check(packed[:at], None)
