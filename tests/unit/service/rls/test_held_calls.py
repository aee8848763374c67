"""Requests that hold something until Headgate's own gateway reports their end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.llm.usage import Usage
from headgate.observability import METRICS
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN, request_of
from headgate.service.rls.held_calls import read_end
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.rls_client import NOON, OK, OVER, Asker, DistantStore, desc, headers_of, request

POLICY = """
version: 1
prices:
  cheap: {input: 1, output: 2}
  "*": {input: 10, cached: 1, output: 20}
rules:
  - {id: tokens, key_by: tenant, limit: 10000/hour, cost: {llm: {count: tokens, hold: 1m}}}
  - {id: spend, match: {model: big*}, key_by: tenant, limit: 1 usd/day, cost: {llm: spend}}
  - {id: slots, key_by: tenant, concurrency: {limit: 2, ttl: 1h}}
"""
CHAT = ("method=POST", "path=/v1/chat/completions?a=b", "host=h", "x-tenant-id=t")
ASKED = ("headgate.settles=1", "headgate.llm.model=big-1", "headgate.llm.max_tokens=100")
BYTES = "headgate.llm.bytes=400"
WHOLE = ("headgate.llm.extraction=1", "headgate.llm.status=200")


class Calls:
    """The gateway's side of calls under a policy."""

    def __init__(self, policy: str = POLICY, **more: Any) -> None:
        self.asker = Asker(policy, **more)

    def begin(self, *more: str, asked: tuple[str, ...] = (*ASKED, BYTES)) -> Any:
        return self.asker.ask(GATEWAY_DOMAIN, desc(*asked, *CHAT, *more))

    def end(self, begun: Any, *usage: str, model: str = "big-1") -> None:
        entries = ["headgate.settle=1", *CHAT, f"headgate.llm.model={model}", *usage]
        if begun is not None:
            entries.append(f"headgate.reservation={reservation(begun)}")
        assert self.asker.code(GATEWAY_DOMAIN, desc(*entries)) == OK

    @property
    def left(self) -> dict[str, int]:
        """What each rule has left."""
        engine = self.asker.core.rules
        asked = {"llm.model": "big-1", "llm.prompt_bytes": "4", "llm.output_tokens": "1"}
        pairs = [one.partition("=") for one in CHAT]
        entries = tuple([(key, value) for key, _, value in pairs])
        peeked = asyncio.run(engine.peek(request_of(GATEWAY_DOMAIN, entries, asked)))
        return {one.rule.id: one.decision.remaining for one in peeked.rules}


def reservation(begun: Any) -> str:
    found = begun.dynamic_metadata["headgate.reservation"]
    assert isinstance(found, str)
    return found


def test_a_call_is_charged_its_estimate_first_and_its_usage_at_the_end() -> None:
    calls = Calls()
    begun = calls.begin()
    assert begun.overall_code == OK
    assert calls.left == {"tokens": 10_000 - 200, "spend": 1_000_000 - 3_000, "slots": 1}
    usage = ("headgate.llm.input=90", "headgate.llm.output=7", "headgate.llm.cached=40")
    calls.end(begun, *usage, *WHOLE)
    spent = 50 * 10 + 40 * 1 + 7 * 20
    assert calls.left == {"tokens": 10_000 - 97, "spend": 1_000_000 - spent, "slots": 2}


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        ((), 200),
        (("headgate.llm.status=200",), 200),
        (("headgate.llm.status=0",), 200),
        (("headgate.llm.status=529",), 0),
        (("headgate.llm.input=9", "headgate.llm.output=1", "headgate.llm.status=200"), 200),
        (("headgate.llm.input=9", "headgate.llm.output=1", "headgate.llm.extraction=2"), 200),
        (("headgate.llm.input=9", "headgate.llm.output=991", "headgate.llm.extraction=2"), 1000),
        (("headgate.llm.output=1", *WHOLE), 200),
        (("headgate.llm.output=900", *WHOLE), 900),
        (("headgate.llm.input=9", *WHOLE), 200),
        (("headgate.llm.input=-9", "headgate.llm.output=1e3", *WHOLE), 200),
        (("headgate.llm.input=9", "headgate.llm.output=3", "headgate.llm.cached=99", *WHOLE), 12),
        (("headgate.llm.input=100000", "headgate.llm.output=1", *WHOLE), 100_001),
    ],
)
def test_the_charge_by_the_usage_that_is_known(usage: tuple[str, ...], charged: int) -> None:
    calls = Calls()
    calls.end(calls.begin(), *usage)
    left = calls.left
    assert (left["tokens"], left["slots"]) == (max(0, 10_000 - charged), 2)


def test_a_call_is_settled_once() -> None:
    calls = Calls()
    begun = calls.begin()
    for output in (5, 500, 0):
        usage = "headgate.llm.input=10", f"headgate.llm.output={output}"
        calls.end(begun, *usage, *WHOLE)
    assert calls.left["tokens"] == 10_000 - 15


def test_what_is_settled_is_counted_once() -> None:
    def counted(name: str) -> float:
        return METRICS.value(f"model_cost_{name}", rule="tokens", kind="tokens")

    calls, reserved, charged = Calls(), counted("reserved"), counted("settled")
    begun = calls.begin()
    for _ in range(2):
        calls.end(begun, "headgate.llm.input=10", "headgate.llm.output=5", *WHOLE)
    assert (counted("reserved") - reserved, counted("settled") - charged) == (200, 15)


def test_another_worker_settles_it() -> None:
    calls = Calls()
    begun = calls.begin()
    other = Calls(store=calls.asker.core.rules.engine.store)
    other.end(begun, "headgate.llm.input=10", "headgate.llm.output=5", *WHOLE)
    assert calls.left["tokens"] == 10_000 - 15


def test_equal_calls_hold_what_they_use_each() -> None:
    calls = Calls()
    begun = [calls.begin() for _ in range(3)]
    assert [one.overall_code for one in begun] == [OK, OK, OVER]
    assert len({reservation(one) for one in begun[:2]}) == 2
    assert "headgate.reservation" not in begun[2].dynamic_metadata
    assert calls.left == {"tokens": 10_000 - 400, "spend": 1_000_000 - 6_000, "slots": 0}
    for _ in range(3):
        calls.end(begun[0])
    assert calls.left["slots"] == 1
    assert calls.begin().overall_code == OK


def test_slots_expire_with_their_lease_if_no_end_is_reported() -> None:
    calls = Calls()
    for _ in range(2):
        calls.begin()
    calls.asker.clock.advance(3599)
    assert calls.begin().overall_code == OVER
    calls.asker.clock.advance(2)
    assert calls.begin().overall_code == OK


def test_a_gateway_that_reports_no_end_gets_no_slots() -> None:
    calls = Calls()
    answers = [calls.begin(asked=ASKED[1:]) for _ in range(4)]
    assert {one.overall_code for one in answers} == {OK}
    assert all("headgate.reservation" not in one.dynamic_metadata for one in answers)


def test_a_usage_without_a_reservation_is_charged_at_the_end() -> None:
    """The service did not answer before, so Envoy let the call pass."""
    calls = Calls()
    calls.end(None, "headgate.llm.input=10", "headgate.llm.output=5", *WHOLE)
    assert calls.left == {"tokens": 10_000 - 15, "spend": 1_000_000 - 200, "slots": 2}
    calls.end(None, *WHOLE)
    assert calls.left["tokens"] == 10_000 - 15


@pytest.mark.parametrize("forged", ["", "x", "\u00e9" * 100, "a" * 90_000])
def test_a_reservation_that_no_worker_made_changes_nothing(forged: str) -> None:
    calls = Calls()
    entries = ("headgate.settle=1", *CHAT, *WHOLE, ("headgate.reservation", forged))
    usage = ("headgate.llm.input=10", "headgate.llm.output=5")
    assert calls.asker.code(GATEWAY_DOMAIN, desc(*entries, *usage)) == OK
    assert calls.left["tokens"] == 10_000


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ((), 4096),
        (("max_tokens=9", "max_completion_tokens=20"), 20),
        (("max_tokens=9.500000",), 10),
        (("max_tokens=-5",), 4096),
        (("max_tokens=9", "n=3"), 27),
        (("max_tokens=9", "unread=1"), 9),
        (("unread=1",), 4096),
        (("max_tokens=" + "9" * 39,), 10**9),
    ],
)
def test_what_is_reserved_by_what_envoy_has_read(fields: tuple[str, ...], tokens: int) -> None:
    policy = """
version: 1
rules: [{id: t, key_by: global, limit: 10000000000/hour, cost: {llm: output_tokens}}]
"""
    one = Asker(policy)
    entries = [f"headgate.llm.{field}" for field in fields]
    answer = one.ask(GATEWAY_DOMAIN, desc("headgate.settles=1", BYTES, *entries, *CHAT))
    assert headers_of(answer)["x-ratelimit-remaining"] == str(10**10 - tokens)


def test_embeddings_generate_nothing() -> None:
    calls = Calls()
    path = ("method=POST", "path=/v1/embeddings", "host=h", "x-tenant-id=t")
    begun = calls.asker.ask(GATEWAY_DOMAIN, desc("headgate.settles=1", BYTES, *path))
    assert calls.left["tokens"] == 10_000 - 100
    entries = ["headgate.settle=1", *path, "headgate.llm.input=30", *WHOLE]
    entries.append(f"headgate.reservation={reservation(begun)}")
    calls.asker.ask(GATEWAY_DOMAIN, desc(*entries))
    assert calls.left["tokens"] == 10_000 - 30


@settings(max_examples=example_count(300))
@given(
    st.dictionaries(
        st.sampled_from(["input", "output", "cached", "written", "extraction", "status"]),
        st.integers(-(2**70), 2**70).map(str)
        | st.sampled_from(["1", "2", "200", "1e9"])
        | st.text(),
    )
)
def test_any_figures_make_a_usage_that_is_possible(fields: dict[str, str]) -> None:
    end = read_end(Request("POST", "/v1/messages"), fields, None)
    usage = end.usage or Usage()
    assert 0 <= usage.cached_tokens + usage.cache_write_tokens <= usage.input_tokens <= 10**9
    assert 0 <= usage.output_tokens <= 10**9
    if end.is_final:
        assert end.usage is not None
        assert {"input", "output"} <= fields.keys()
        assert fields["extraction"] == "1"


def test_a_model_that_is_unknown_is_under_the_rules_of_all() -> None:
    calls = Calls()
    answer = calls.begin(asked=("headgate.settles=1", "headgate.llm.unread=1", BYTES))
    assert '"spend"' in headers_of(answer)["ratelimit"]
    other = calls.begin(asked=("headgate.settles=1", "headgate.llm.model=small", BYTES))
    assert '"spend"' not in headers_of(other)["ratelimit"]


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/chat/completions", "tokens"), ("/v1/messages", "rate_limit_error")]
)
def test_replies_have_the_form_of_the_provider(path: str, kind: str) -> None:
    one = Asker(POLICY.replace("10000/hour", "100/hour"))
    entries = ("method=POST", f"path={path}", "host=h", "x-tenant-id=t", *ASKED)
    answer = one.ask(GATEWAY_DOMAIN, desc(*entries, BYTES))
    assert answer.overall_code == OVER
    assert json.loads(answer.raw_body)["error"]["type"] == kind
    assert headers_of(answer)["x-should-retry"] == "false"
    names = {"rate_limit_error": "anthropic-ratelimit-tokens-limit"}
    assert headers_of(answer)[names.get(kind, "x-ratelimit-limit-tokens")] == "100"


class TestWithoutStore:
    def test_a_call_of_an_outage_is_charged_when_it_is_settled(self) -> None:
        clock = ManualClock(NOON)
        store = DistantStore(clock)
        calls = Calls(store=store, clock=clock)
        store.is_gone = True
        begun = calls.begin()
        assert begun.overall_code == OK
        store.is_gone = False
        usage = ("headgate.llm.input=10", "headgate.llm.output=5")
        for _ in range(2):
            calls.end(begun, *usage, *WHOLE)
        assert calls.left["tokens"] == 10_000 - 15

    def test_slots_that_this_process_granted_are_released_by_it(self) -> None:
        policy = POLICY.replace("ttl: 1h}", "ttl: 1h}, on_store_failure: local")
        clock = ManualClock(NOON)
        store = DistantStore(clock)
        calls = Calls(policy, store=store, clock=clock)
        store.is_gone = True
        begun = [calls.begin() for _ in range(3)]
        assert [one.overall_code for one in begun] == [OK, OK, OVER]
        calls.end(begun[0])
        assert calls.begin().overall_code == OK

    def test_the_estimate_stays_charged_if_the_store_is_gone_at_the_end(self) -> None:
        clock = ManualClock(NOON)
        store = DistantStore(clock)
        calls = Calls(store=store, clock=clock)
        begun = calls.begin()
        store.is_gone = True
        calls.end(begun, "headgate.llm.input=10", "headgate.llm.output=5", *WHOLE)
        store.is_gone = False
        assert calls.left["tokens"] == 10_000 - 200


def test_calls_without_anything_to_hold_are_kept_ready_as_before() -> None:
    one = Asker("version: 1\nrules: [{id: r, key_by: tenant, limit: 100/hour}]\n")
    message = request(GATEWAY_DOMAIN, desc("headgate.settles=1", *CHAT))
    for _ in range(3):
        one.calls.should_rate_limit(message)
    assert one.calls._ready.get(message) is not None
    held = Calls()
    message = request(GATEWAY_DOMAIN, desc("headgate.settles=1", *CHAT))
    for _ in range(3):
        held.asker.calls.should_rate_limit(message)
    assert held.asker.calls._ready.get(message) is None
