"""Queues while the store is gone: a share of the rate, and turns that the store hears of later."""

from fractions import Fraction

from headgate.decision import OnFailure
from headgate.errors import StoreError
from headgate.limits import LeakyQueue, TokenBucket
from headgate.runtime.fallback import Fallback
from headgate.runtime.local_share import RuleChecks
from headgate.stores.operations import CancelQueued, Check, Take
from tests.support.failing_fallback import FailingStore, reconcile

QUEUE = LeakyQueue(rate=10, queue=20)
GONE = StoreError("gone", reason="circuit_open")
HALF = OnFailure(share=Fraction(1, 2))


def asked(cost: int = 1) -> RuleChecks:
    return RuleChecks((Check("g", "k", QUEUE, cost),), HALF)


def test_a_process_goes_on_at_its_share_of_the_rate() -> None:
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    said = [fallback.decide([asked()], GONE)[0] for _ in range(12)]
    assert [round(one.delay, 9) for one in said[:4]] == [0.0, 0.2, 0.4, 0.6]
    assert [one.allowed for one in said] == [True] * 11 + [False]
    assert said[-1].retry_after == 0.2
    assert {one.source for one in said[:11]} == {"fail_open"}


def test_a_turn_that_was_given_here_is_given_up_here() -> None:
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    turn = [fallback.decide([asked()], GONE)[0] for _ in range(2)][1].place_ns
    assert fallback.local.run(CancelQueued(asked().shared, (turn,)))
    assert fallback.decide([asked()], GONE)[0].place_ns == turn


def test_a_store_that_is_back_hears_of_the_turns_that_are_still_to_come() -> None:
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    check = Check("g", "k", LeakyQueue(rate=1, queue=20))
    for _ in range(6):  # at half the rate, one every two seconds
        fallback.decide([RuleChecks((check,), HALF)], GONE)
    store.clock.advance(4)
    fallback.succeed()
    reconcile(fallback)
    assert store.inner.used_in("g", "k") == 4, "the two that went before are over"
    (outcome,) = store.run(Take((check,)))
    assert outcome.delay_ns == 4_000_000_000


def test_queues_and_buckets_are_decided_together() -> None:
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    bucket = RuleChecks((Check("b", "k", TokenBucket(2, 1)),), OnFailure())
    said = [fallback.decide([asked(), bucket], GONE) for _ in range(3)]
    assert [all(one) for one in said] == [True, True, False]
    assert fallback.decide([asked()], GONE)[0].delay == 0.4
