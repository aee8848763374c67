"""Turns over a ledger: what is given, to whom, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from headgate.service.rlqs.allocation import Allocation, GatewayState, allocate
from headgate.service.rlqs.ledger import NEVER, Claim, Ledger
from headgate.service.rlqs.options import RlqsOptions
from headgate.service.rlqs.rates import MILLION, Allowance, TokenBucket
from headgate.units import SECOND

LIMIT = Allowance(Fraction(100), 100)
OPTIONS = RlqsOptions()
NOW = 1_000 * SECOND
NEW = GatewayState(None)


def _allocate(
    ledger: Ledger | None,
    states: dict[str, GatewayState],
    *,
    at: float = 0,
    limit: Allowance = LIMIT,
    gone: tuple[str, ...] = (),
    abandoned: tuple[str, ...] = (),
) -> Allocation:
    return allocate(
        ledger,
        NOW + round(at * SECOND),
        allowance=limit,
        states=states,
        options=OPTIONS,
        gone=gone,
        abandoned=abandoned,
    )


def _standing(allocation: Allocation, name: str, demand: int) -> GatewayState:
    return GatewayState(demand * MILLION, 0, allocation.ledger.claims[name].made_ns)


def test_who_is_alone_gets_all_but_the_reserve_and_half_of_the_tokens() -> None:
    allocation = _allocate(None, {"a": NEW})
    assert allocation.assignments == {"a": TokenBucket(95, 1, 50)}
    assert allocation.ledger.pool == 50 * MILLION


def test_a_change_is_paid_for_and_what_it_replaces_counts_until_it_has_arrived() -> None:
    allocation = _allocate(None, {"a": NEW})
    allocation = _allocate(allocation.ledger, {"a": _standing(allocation, "a", 500), "b": NEW})
    a, b = allocation.ledger.claims["a"], allocation.ledger.claims["b"]
    assert (a.given, a.rate) == (47_500_000, 95 * MILLION)
    assert a.held_until_ns == NOW + OPTIONS.delivery_ns
    assert b.rate == 5 * MILLION
    assert allocation.ledger.rate <= LIMIT.millionths
    assert allocation.ledger.burst * MILLION + allocation.ledger.pool <= LIMIT.burst * MILLION
    later = allocation.ledger.aged(NOW + OPTIONS.delivery_ns, LIMIT)
    assert later.claims["a"].rate == 47_500_000


def test_nothing_changes_while_everybody_has_what_it_needs() -> None:
    allocation = _allocate(None, {"a": NEW, "b": NEW})
    allocation = _allocate(
        allocation.ledger, {n: _standing(allocation, n, 500) for n in "ab"}, at=2
    )
    states = {"a": _standing(allocation, "a", 30), "b": _standing(allocation, "b", 5)}
    assert _allocate(allocation.ledger, states, at=3).assignments == {}


def test_a_late_renewal_is_a_change_for_the_bucket_was_forgotten_meanwhile() -> None:
    allocation = _allocate(None, {"a": NEW})
    renewed = _allocate(allocation.ledger, {"a": _standing(allocation, "a", 500)}, at=5)
    assert renewed.assignments == {"a": TokenBucket(95, 1, 50)}
    assert renewed.ledger.claims["a"].held_burst == 0
    late = _allocate(allocation.ledger, {"a": _standing(allocation, "a", 500)}, at=9.5)
    given = late.assignments["a"]
    assert given is not None
    assert late.ledger.pool == 50 * MILLION - given.burst * MILLION
    assert late.ledger.claims["a"].burst == 50 + given.burst
    assert late.ledger.rate == 95 * MILLION  # the one takes the place of the other


def test_what_was_never_told_counts_as_in_force_and_is_not_renewed() -> None:
    allocation = _allocate(None, {"a": NEW})
    again = _allocate(allocation.ledger, {"a": NEW})  # the reply of the board was lost
    claim = again.ledger.claims["a"]
    assert claim.held_rate == 95 * MILLION
    assert again.ledger.rate <= LIMIT.millionths
    assert claim.held_until_ns == allocation.ledger.claims["a"].ends_ns


def test_an_abandoned_bucket_is_free_when_the_word_has_arrived() -> None:
    allocation = _allocate(None, {"a": NEW})
    left = _allocate(allocation.ledger, {}, abandoned=("a",)).ledger
    assert left.rate == 95 * MILLION
    assert left.aged(NOW + OPTIONS.delivery_ns, LIMIT).rate == 0


def test_who_is_gone_has_what_it_had_until_its_time_is_over() -> None:
    allocation = _allocate(None, {"a": NEW})
    left = _allocate(allocation.ledger, {}, gone=("a",)).ledger
    end = OPTIONS.ttl + OPTIONS.delivery
    assert left.aged(NOW + round((end - 0.1) * SECOND), LIMIT).rate == 95 * MILLION
    other = _allocate(left, {"b": NEW}, at=end)
    assert other.assignments["b"] is not None
    assert set(other.ledger.claims) == {"b"}


def test_what_is_left_beside_one_who_is_gone_is_divided_fairly() -> None:
    allocation = _allocate(None, {"a": NEW})
    later = _allocate(allocation.ledger, {"b": NEW, "c": NEW}, at=2, gone=("a",))
    assert later.assignments == {"b": None, "c": None}  # there is nothing beside the 95 of a
    part = Claim(token_bucket=TokenBucket(60, 1, 30), made_ns=NOW, ends_ns=NOW + 9 * SECOND)
    ledger = Ledger(60 * MILLION, NOW, NEVER, {"a": part})
    given = _allocate(ledger, {"b": NEW, "c": NEW}).assignments
    assert [one and one.rate for one in given.values()] == [Fraction(35, 2), Fraction(35, 2)]


def test_without_a_token_who_is_new_denies_all_until_there_is_one() -> None:
    allocation = _allocate(None, {"a": NEW})
    empty = replace(allocation.ledger, pool=0)
    states = {"a": _standing(allocation, "a", 50), "b": NEW}
    denied = _allocate(empty, states)
    assert denied.assignments["b"] is None
    assert denied.due_ns == NOW + SECOND


def test_a_lowered_limit_is_obeyed_even_if_that_means_nothing_for_a_moment() -> None:
    allocation = _allocate(None, {"a": NEW})
    lower = Allowance(Fraction(1), 1)
    low = _allocate(allocation.ledger, {"a": _standing(allocation, "a", 500)}, limit=lower)
    assert low.assignments == {"a": None}
    again = _allocate(low.ledger, {"a": _standing(low, "a", 500)}, limit=lower, at=3)
    assert again.assignments["a"] is not None
    assert again.assignments["a"].millionths <= MILLION


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    allocation = _allocate(None, {"a": NEW})
    back = _allocate(allocation.ledger, {"a": _standing(allocation, "a", 500)}, at=-100)
    assert back.ledger.at_ns == NOW
    assert back.ledger.pool == allocation.ledger.pool
    assert back.assignments == {}


def test_a_pool_grows_by_what_is_not_given_and_no_further_than_the_capacity() -> None:
    claims = {
        "a": Claim(token_bucket=TokenBucket(60, 1, 30), made_ns=NOW, ends_ns=NOW + 2 * SECOND)
    }
    ledger = Ledger(0, NOW, NEVER, claims)
    assert ledger.aged(NOW + SECOND, LIMIT).pool == 40 * MILLION
    assert ledger.aged(NOW + 2 * SECOND, LIMIT).pool == 70 * MILLION  # 100 less the burst in force
    assert ledger.aged(NOW + 3 * SECOND, LIMIT).pool == 100 * MILLION


def test_a_ledger_may_be_forgotten_when_it_is_as_new() -> None:
    allocation = _allocate(None, {"a": NEW})
    end = NOW + OPTIONS.ttl_ns + OPTIONS.delivery_ns
    assert allocation.expires_ns == end + SECOND // 2  # and half of the tokens have come back
    assert allocation.ledger.aged(allocation.expires_ns, LIMIT).pool == LIMIT.burst * MILLION


def test_a_ledger_is_written_and_read_as_it_is() -> None:
    allocation = _allocate(None, {"a": NEW, "b/\x00é": NEW})
    assert Ledger.unpacked(allocation.ledger.packed()) == allocation.ledger


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "[2]",
        "[2,0,0,0,{}]",
        "[1,0,0,0,5]",
        '[1,0,0,0,{"a":[1]}]',
        '[1,0,0,0,{"a":[0,0,0,[0,1,1],0,0,0,0,0]}]',
    ],
)
def test_what_is_no_ledger_of_ours_is_none(text: str) -> None:
    assert Ledger.unpacked(text) is None
