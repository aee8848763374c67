"""What counts as used, operation by operation."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.limits import TokenBucket
from headgate.stores.layers.replication.tally import consumption
from headgate.stores.operations import (
    Charge,
    Check,
    Draw,
    GrantLease,
    Hold,
    LeaseGrant,
    MergeUsage,
    Operation,
    Pour,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
)

LIMIT = TokenBucket(10, 1)
A = Check("g", "a", LIMIT, 2)
B = Check("g", "b", LIMIT, 3)
YES = Outcome(allowed=True, remaining=1, retry_after_ns=0, reset_after_ns=1)
NO = Outcome(allowed=False, remaining=0, retry_after_ns=1, reset_after_ns=1)


def used(operation: Operation[Any], result: Any) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for check, amount in consumption(operation, result):
        amounts[check.key] = amounts.get(check.key, 0) + amount
    return {key: amount for key, amount in amounts.items() if amount}


def lent(outcome: Outcome, amount: int) -> LeaseGrant:
    return LeaseGrant(outcome, amount, lasts_ns=1, holders=1, lent=amount, wait_ns=0)


@pytest.mark.parametrize(
    ("operation", "result", "expected"),
    [
        (Take((A, B)), (YES, YES), {"a": 2, "b": 3}),
        (Take((A, B)), (YES, NO), {}),
        (Take((A,), consume=False), (YES,), {}),
        (TakeEach((Take((A,)), Take((B,)))), ((YES,), (NO,)), {"a": 2}),
        (TakeEach((Take((A,)), Take((B,)))), (StoreError("gone"), (YES,)), {"b": 3}),
        (Charge((A, A)), (NO, NO), {"a": 4}),
        (Refund((A,)), (YES,), {"a": -2}),
        (Reset((A,)), None, {}),
        (Pour("g", "a", 5, 1), 5, {}),
        (Draw("g", "a", 5), 0, {}),
        (MergeUsage((A,), "us/1", 1, 1), (YES,), {}),
    ],
)
def test_what_is_admitted_or_charged_counts(
    operation: Operation[Any], result: Any, expected: dict[str, int]
) -> None:
    assert used(operation, result) == expected


def test_what_is_held_counts_when_it_is_settled_with_what_it_really_was() -> None:
    assert used(Hold((A,), "h", 1), (YES,)) == {}
    assert used(Settle((B,), "h", charge_lapsed=False), True) == {"b": 3}
    assert used(Settle((B,), "h", charge_lapsed=True), False) == {"b": 3}
    assert used(Settle((B,), "h", charge_lapsed=False), False) == {}


def test_a_lease_counts_when_it_is_lent_less_what_is_given_back() -> None:
    lend = GrantLease(A, "node", most=10, ttl_ns=1, unused=4)
    assert used(lend, lent(YES, 10)) == {"a": 2 + 10 - 4}
    assert used(lend, lent(NO, 0)) == {"a": -4}


def test_a_licence_counts_when_its_use_is_told() -> None:
    lend = GrantLease(A, "node", most=10, ttl_ns=1, used=12, told=5, is_charged=False)
    assert used(lend, lent(YES, 10)) == {"a": 2 + 7}
    assert used(lend, lent(NO, 0)) == {"a": 7}
