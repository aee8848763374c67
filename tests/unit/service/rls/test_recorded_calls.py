"""Calls of Envoy's rate limit service are in the journal, whichever way they went."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from headgate.observability import RECORDER, DecisionRecord
from headgate.observability.candidates import CANDIDATES, merged_candidates
from headgate.testing import ManualClock
from tests.support.lease_store import LeaseGrantingStore
from tests.support.rls_client import NOON, Asker, DistantStore, desc

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE = "version: 1\nrules: [{id: noted, key_by: 'attribute:u', limit: 2/minute}]\n"
SEVERAL = """
version: 1
rules:
  - {id: noted, key_by: 'attribute:u', limit: 2/minute}
  - {id: noted-too, key_by: 'attribute:u', limit: 9/minute; 3/s}
  - {id: noted-shadow, key_by: 'attribute:u', limit: 1/minute, mode: shadow}
"""
ENVOY = """
domain: edge
descriptors:
  - {key: u, rate_limit: {unit: minute, requests_per_unit: 2}}
"""


@pytest.fixture
def heard() -> Iterator[list[DecisionRecord]]:
    told: list[DecisionRecord] = []
    end = RECORDER.listen(told.append)
    yield told
    end()


def asked(asker: Asker, times: int = 3) -> dict[tuple[str, str, str], int]:
    """What the journal counted while *asker* was asked."""
    before = Counter[tuple[str, str, str]](dict(RECORDER.counts()))
    for _ in range(times):
        asker.ask("edge", desc("u=ada"))
    return Counter[tuple[str, str, str]](dict(RECORDER.counts())) - before


@pytest.mark.parametrize("is_distant", [False, True])
def test_one_rule(is_distant: bool, heard: list[DecisionRecord]) -> None:
    store = DistantStore(ManualClock(NOON)) if is_distant else None
    assert asked(Asker(ONE, store=store)) == {
        ("noted", "allowed", "store"): 2,
        ("noted", "denied", "store"): 1,
    }
    assert [one.allowed for one in heard] == [True, True, False]
    assert heard[2].rules[0].retry_after_ns


@pytest.mark.parametrize("is_distant", [False, True])
def test_several_rules_and_one_in_shadow(is_distant: bool, heard: list[DecisionRecord]) -> None:
    store = DistantStore(ManualClock(NOON)) if is_distant else None
    assert asked(Asker(SEVERAL, store=store)) == {
        ("noted", "allowed", "store"): 2,
        ("noted", "denied", "store"): 1,
        ("noted-too", "allowed", "store"): 3,
        ("noted-shadow", "shadow_allowed", "store"): 1,
        ("noted-shadow", "shadow_denied", "store"): 2,
    }
    assert [one.allowed for one in heard] == [True, True, False]


def test_limits_of_a_configuration_are_counted_by_their_names_or_places() -> None:
    assert asked(Asker(envoy=ENVOY)) == {
        ("edge.u", "allowed", "store"): 2,
        ("edge.u", "denied", "store"): 1,
    }
    named = ENVOY.replace("{unit", "{name: 'per user', unit")
    assert set(asked(Asker(envoy=named), 1)) == {("per user", "allowed", "store")}


@pytest.mark.parametrize("envoy", [None, ENVOY])
def test_limits_that_calls_bring_with_them_are_counted_under_one_name(envoy: str | None) -> None:
    asker = Asker(envoy=envoy)
    before = Counter[tuple[str, str, str]](dict(RECORDER.counts()))
    for number in range(3):
        asker.ask("edge", desc(f"key-{number}=x", limit=(1, "MINUTE")))
    grown = Counter[tuple[str, str, str]](dict(RECORDER.counts())) - before
    assert grown == {("(call)", "allowed", "store"): 3}


@pytest.mark.parametrize("envoy", [None, ENVOY])
def test_a_call_that_nothing_limits_is_a_request_that_passes(envoy: str | None) -> None:
    asker = Asker(envoy=envoy)
    before = [cell[0] for cell in RECORDER.requests]
    for _ in range(2):
        asker.ask("edge", desc("other=x"))
    assert [cell[0] for cell in RECORDER.requests] == [before[0], before[1] + 2]


def test_what_is_decided_without_the_store_says_so() -> None:
    store = DistantStore(ManualClock(NOON))
    asker = Asker(ONE, store=store)
    store.is_gone = True
    assert set(asked(asker, 1)) == {("noted", "allowed", "fail_open")}


class Granting(DistantStore):
    """A store that grants leases, as one does that others share."""

    grants_leases = True

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.memory = LeaseGrantingStore(clock=clock)


def test_the_source_is_a_lease_where_one_decided() -> None:
    leased = (
        "version: 1\nrules: [{id: leased, key_by: 'attribute:u', limit: 1000/minute,"
        " accuracy: {batch: 10}}]\n"
    )
    asker = Asker(leased, store=Granting(ManualClock(NOON)))
    before = Counter[tuple[str, str, str]](dict(RECORDER.counts()))
    for _ in range(60):
        asker.ask("edge", desc("u=ada"))
    grown = Counter[tuple[str, str, str]](dict(RECORDER.counts())) - before
    assert set(grown) == {("leased", "allowed", "store"), ("leased", "allowed", "lease")}


def test_looking_is_no_decision() -> None:
    asker = Asker(ONE)
    before = dict(RECORDER.counts())
    asker.left("edge", "u=ada")
    assert dict(RECORDER.counts()) == before


CANDIDATE = """
version: 1
rules:
  - {id: rls-live, key_by: 'attribute:u', limit: 3/minute}
  - id: rls-live-candidate
    candidate_of: rls-live
    mode: shadow
    key_by: attribute:u
    limit: 1/minute
"""


@pytest.mark.parametrize("is_distant", [False, True])
def test_a_candidate_is_compared_with_the_live_rule(is_distant: bool) -> None:
    store = DistantStore(ManualClock(NOON)) if is_distant else None
    asker = Asker(CANDIDATE.replace("rls-live", f"rls-live-{is_distant}"), store=store)
    asked(asker, 4)
    snapshot = CANDIDATES.snapshot()
    (told,) = [
        one
        for one in merged_candidates([snapshot], snapshot["at"])
        if one["rule_id"] == f"rls-live-{is_distant}-candidate"
    ]
    assert told["requests"] == 4
    assert told["would_deny"] == 3
    assert told["newly_denied"] == 2
    assert told["denied_by_both"] == 1
    assert told["keys"] == 1
