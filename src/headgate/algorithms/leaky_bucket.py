"""The leaky bucket as a meter: water poured in, leaking out at a steady rate.

Each unit of cost is a unit of water; it fits when it does not make the bucket run over.

    level(now)  =  max(0, empty_at - now) * leak_rate
    pour c      :  empty_at = max(empty_at, now) + c / leak_rate   if level(now) + c <= capacity

The level of the water is what is missing from a token bucket of the same size, so the meter is
GCRA again, its state the instant at which the bucket will have run dry. (The leaky bucket that
*delays* what does not fit is another thing, a queue; it lives in `headgate.shaping`.)
"""

from headgate.algorithms.gcra import Paced


class LeakyBucketAlgorithm(Paced):
    """The arithmetic of `LeakyBucket(capacity, leak_rate)`. The state is `empty_at`."""

    __slots__ = ()
