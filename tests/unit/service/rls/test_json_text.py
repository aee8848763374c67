"""`POST /json`, as envoyproxy/ratelimit has it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support import envoy_messages
from tests.support.rls_client import NOON, Asker, DistantStore

CONFIG = """
domain: legacy
descriptors:
  - key: user
    rate_limit: {name: users, unit: minute, requests_per_unit: 3}
"""


def post(asker: Asker, body: object) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, answer = asyncio.run(asker.calls.json(content))
    return status, json.loads(answer)


def ask(**fields: object) -> dict[str, object]:
    entries = [{"key": "user", "value": "ada"}]
    return {"domain": "legacy", "descriptors": [{"entries": entries, **fields}]}


def test_the_answer_is_in_the_json_of_protocol_buffers() -> None:
    status, answer = post(Asker(envoy=CONFIG, options=RlsOptions(headers=False)), ask())
    assert status == 200
    assert answer == {
        "overallCode": "OK",
        "statuses": [
            {
                "code": "OK",
                "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE", "name": "users"},
                "limitRemaining": 2,
                "durationUntilReset": "60s",
            }
        ],
    }


def test_over_the_limit_is_429() -> None:
    asker = Asker(envoy=CONFIG)
    assert [post(asker, ask())[0] for _ in range(4)] == [200, 200, 200, 429]
    status, answer = post(asker, ask())
    assert (status, answer["overallCode"]) == (429, "OVER_LIMIT")
    assert {"key": "retry-after", "value": "60"} in answer["responseHeadersToAdd"]


@pytest.mark.parametrize(
    "hits", [{"hitsAddend": 2}, {"hits_addend": 2}, {"hitsAddend": "2"}, {"hits_addend": 2.0}]
)
def test_fields_are_read_in_either_spelling(hits: dict[str, object]) -> None:
    status, answer = post(Asker(envoy=CONFIG), ask(**hits))
    assert (status, answer["statuses"][0]["limitRemaining"]) == (200, 1)


def test_a_zero_and_what_is_given_back_are_read() -> None:
    asker = Asker(envoy=CONFIG)
    post(asker, ask())
    assert post(asker, ask(hitsAddend=0))[1]["statuses"][0]["limitRemaining"] == 2
    given = post(asker, ask(hitsAddend=1, isNegativeHits=True))[1]
    assert given["statuses"][0]["limitRemaining"] == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"nul",
        b"\xff\xfe",
        b'{"domain": 5}',
        b'{"domain": "legacy", "unknown": 1}',
        b'{"domain": "legacy"}',
        b'{"descriptors": [{"entries": []}]}',
        b'{"domain": "legacy", "hitsAddend": -1}',
        b'{"domain": "legacy", "hitsAddend": 1e400}',
        b'{"domain": "legacy", "hitsAddend": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"domain": "legacy", "descriptors": [{"hitsAddend": "18446744073709551615"}]}',
        b'{"domain": "legacy", "descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}',
    ],
)
def test_what_makes_no_sense_is_400_and_says_why(body: bytes) -> None:
    status, answer = post(Asker(envoy=CONFIG), body)
    assert status == 400
    assert answer["message"]


def test_a_body_may_not_be_too_large() -> None:
    asker = Asker(envoy=CONFIG, options=RlsOptions(most_bytes=50))
    assert post(asker, b" " * 51)[0] == 400


def test_a_store_that_is_gone_is_500() -> None:
    store = DistantStore(ManualClock(NOON))
    asker = Asker(envoy=CONFIG, store=store)
    assert post(asker, ask())[0] == 200
    store.is_gone = True
    status, answer = post(asker, ask())
    assert (status, "store" in answer["message"]) == (500, True)


def test_others_can_read_what_we_write() -> None:
    _, answer = asyncio.run(Asker(envoy=CONFIG).calls.json(json.dumps(ask()).encode()))
    read = json_format.Parse(answer, envoy_messages.service.RateLimitResponse())
    assert read.statuses[0].duration_until_reset.seconds == 60


ASKER = Asker(envoy=CONFIG)
names = st.sampled_from(
    [
        "domain",
        "descriptors",
        "entries",
        "key",
        "value",
        "hitsAddend",
        "hits_addend",
        "limit",
        "unit",
    ]
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=example_count(300), deadline=None)
@given(st.one_of(st.binary(max_size=40), values.map(lambda one: json.dumps(one).encode())))
def test_nothing_makes_it_raise(body: bytes) -> None:
    status, answer = asyncio.run(ASKER.calls.json(body))
    assert status in (200, 400, 429)
    json.loads(answer)
