"""Several decisions as one."""

from headgate import Decision, TokenBucket
from headgate.decision import combine


def part(
    number: int, remaining: int, retry_after_ns: int | None, source: str = "store"
) -> Decision:
    return Decision(
        f"key {number}",
        TokenBucket(10 + number, 1),
        allowed=retry_after_ns == 0,
        remaining=remaining,
        retry_after_ns=retry_after_ns,
        reset_after_ns=100 * number,
        source=source,
    )


def test_one_decision_is_itself() -> None:
    alone = part(1, 5, 0)
    assert combine([alone]) is alone


def test_all_that_allow_are_allowed_and_the_least_remaining_speaks() -> None:
    parts = [part(1, 5, 0), part(2, 3, 0), part(3, 9, 0)]
    decision = combine(parts)
    assert (decision.allowed, decision.remaining, decision.retry_after_ns) == (True, 3, 0)
    assert (decision.key, decision.limit) == (parts[1].key, parts[1].limit)
    assert decision.reset_after_ns == 300
    assert decision.limits == tuple(parts)


def test_one_that_refuses_refuses_all() -> None:
    decision = combine([part(1, 0, 0), part(2, 4, 7)])
    assert (decision.allowed, decision.retry_after_ns) == (False, 7)
    assert decision.key == "key 2"
    assert decision.remaining == 0


def test_of_several_that_refuse_the_longest_wait_counts() -> None:
    decision = combine([part(1, 0, 5), part(2, 0, 9), part(3, 0, 7)])
    assert (decision.retry_after_ns, decision.key) == (9, "key 2")


def test_never_is_the_longest_wait() -> None:
    decision = combine([part(1, 0, 5), part(2, 3, None), part(3, 0, 10**30)])
    assert (decision.retry_after_ns, decision.retry_after, decision.key) == (None, None, "key 2")
    assert decision.remaining == 0
