"""`RateLimitedError`: what a refused call raises."""

import pickle

from headgate import HeadgateError, RateLimitedError, RateLimiter
from headgate.testing import ManualClock


def refusal(cost: int) -> RateLimitedError:
    limiter = RateLimiter("2/m", clock=ManualClock())
    limiter.hit("user:42", 2)
    return RateLimitedError(limiter.hit("user:42", cost))


def test_it_carries_the_decision() -> None:
    error = refusal(1)
    assert isinstance(error, HeadgateError)
    assert (error.decision.allowed, error.decision.retry_after) == (False, 30)


def test_its_message_says_whose_limit_and_until_when() -> None:
    assert str(refusal(1)) == "'user:42' is over its limit of 2/m: retry after 30 s"
    assert str(refusal(3)) == "'user:42' is over its limit of 2/m: it can never fit"


def test_it_survives_pickling() -> None:
    error = refusal(1)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
    assert isinstance(again, RateLimitedError)
    assert again.decision == error.decision
    assert str(again) == str(error)
