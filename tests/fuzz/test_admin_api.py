"""Any call of the admin API by one who may change rules: an answer or a problem, never an error."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.admin.app import OPERATIONS
from tests.support.admin_api import PROBLEM, RULES, Desk, attended
from tests.support.fuzzing import anything, bounded, fuzz_count, paths_in, replaced

LINES = sorted(one.line for one in OPERATIONS)
BODIES: Any = {
    "rule": {"match": {"endpoint": "/a"}, "key_by": "ip", "limit": "5/minute", "mode": "shadow"},
    "policy": {"version": 1, "rules": RULES},
    "rules": {"rules": {"login": None, "new": {"key_by": "ip", "limit": "1/s"}}},
    "request": {"method": "POST", "path": "/login", "ip": "203.0.113.7"},
    "key": {"key": "ip=203.0.113.7", "rule": "login", "rule_id": "login", "limit": "9/minute"},
    "rollback": {"revision": 1},
    "block": {"rule": "login", "key": "ip=1", "block": True, "for": "1h", "until": "2030-01-01"},
    "enable": {"mode": "shadow"},
}
names = st.sampled_from(
    ["login", "api", "new", "none", "x:disable", "1", "0", "%00", "é", "a" * 210]
)
words = st.sampled_from(
    ["", "1", "0", "-1", "9" * 20, "login", "ip=1", "shadow", "x", "é", "*", "%"]
)
queries = st.dictionaries(
    st.sampled_from(["mode", "before", "limit", "key", "rule", "cursor", "match", "seconds", "x"]),
    words,
    max_size=3,
)
tags = st.sampled_from(
    [None, "*", '"1"', "1", 'W/"1"', '"x"', "", '"1", "2"', '"' + "9" * 30 + '"']
)
bodies = (
    st.sampled_from(sorted(BODIES)).map(lambda name: json.dumps(BODIES[name]).encode())
    | st.builds(
        lambda path, value: json.dumps(replaced(BODIES, path, value)[path[0]]).encode(),
        st.sampled_from([path for path in paths_in(BODIES) if path]),
        anything,
    )
    | st.binary(max_size=20)
    | st.none()
)
calls = st.tuples(st.sampled_from(LINES), names, queries, tags, bodies)


@settings(max_examples=fuzz_count(60))
@given(st.lists(calls, min_size=1, max_size=6))
@example([("PUT /rules/{rule_id}", "new", {}, "*", b'{"key_by": "ip", "limit": "1/\\ud800"}')])
@example(
    [("PUT /policy", "", {}, None, b'{"version": 1, "rules": []}'), (LINES[0], "", {}, "", b"")]
)
def test_any_call_has_an_answer_or_a_problem(
    several: list[tuple[str, str, dict[str, str], str | None, bytes | None]],
) -> None:
    async def call_all(desk: Desk) -> None:
        for line, name, query, tag, body in several:
            method, _, path = (
                line.replace("{rule_id}", name).replace("{number}", name).partition(" ")
            )
            sent = {"authorization": f"Bearer {desk.token}", "content-type": "application/json"}
            if tag is not None:
                sent["if-match"] = tag
            answer = await desk.client.request(
                method, path, params=query, headers=sent, content=body or b""
            )
            if answer.is_success or answer.status_code == 304:
                assert not answer.content or answer.json() is not None
                continue
            assert answer.headers["content-type"] == PROBLEM
            assert answer.json()["status"] == answer.status_code < 500 or answer.status_code == 503
        assert (await desk.client.get("/policy", headers=sent)).status_code == 200

    with bounded():
        attended(call_all)
