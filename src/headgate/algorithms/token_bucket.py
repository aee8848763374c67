"""The token bucket: a store of tokens that fills at a steady rate.

The textbook keeps two numbers, how many tokens there were and when that was counted, and each
check computes `tokens = min(capacity, tokens + elapsed * rate)`. Both follow from one: the instant
at which the bucket will be full. A bucket that is `d` seconds short of full misses `d * rate`
tokens, and

    tokens(now)  =  capacity - max(0, full_at - now) * rate
    take c       :  full_at = max(full_at, now) + c / rate     if tokens(now) >= c

With `full_at` for TAT and `1 / rate` for the unit this is GCRA, line by line: hence the promise
that `TokenBucket(50, 10)` and `GCRA(rate=10, burst=50)` admit the same sequences, and one number
per key instead of two. In any interval of length t at most `capacity + rate * t` is admitted.
"""

from headgate.algorithms.gcra import Paced


class TokenBucketAlgorithm(Paced):
    """The arithmetic of `TokenBucket(capacity, refill_rate)`. The state is `full_at`."""

    __slots__ = ()
