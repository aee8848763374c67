"""pyrate-limiter, in two ways: its buckets by themselves, and behind its `Limiter`.

Neither says when the quota is as new; both are let off that figure. No bucket is registered for
leaking: the thread that leaks would disturb the others, and the quotas outlast the run.
"""

from __future__ import annotations

from time import thread_time_ns
from typing import TYPE_CHECKING, cast

from pyrate_limiter import (
    BucketFactory,
    InMemoryBucket,
    Limiter,
    MonotonicClock,
    Rate,
    RateItem,
    StateBucket,
    TokenBucket,
)

from benchmarks.inprocess.contestant import Contestant, Entry, Quota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyrate_limiter import AbstractBucket, Decision

MILLISECONDS = 1_000


class BucketPerKey(BucketFactory):
    """A bucket for each key, made when the key is first seen."""

    def __init__(self, quota: Quota, bucket_for: Callable[[list[Rate]], AbstractBucket]) -> None:
        self.buckets: dict[str, AbstractBucket] = {}
        self._rates = [Rate(quota.amount, quota.seconds * MILLISECONDS)]
        self._bucket_for = bucket_for
        self._clock = MonotonicClock()

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self._clock.now(), weight)

    def get(self, item: RateItem) -> AbstractBucket:
        try:
            return self.buckets[item.name]
        except KeyError:
            return self.add(item.name)

    def add(self, key: str) -> AbstractBucket:
        bucket = self.buckets[key] = self._bucket_for(self._rates)
        return bucket


class PyrateBucket(Entry):
    """The quickest way: the bucket itself gives a decision, and its count what remains."""

    def __init__(self, quota: Quota, bucket_for: Callable[[list[Rate]], AbstractBucket]) -> None:
        self._amount = quota.amount
        self._factory = BucketPerKey(quota, bucket_for)

    def run(self, keys: Iterable[str]) -> int:
        factory, buckets, amount = self._factory, self._factory.buckets, self._amount
        start = thread_time_ns()
        for key in keys:
            try:
                bucket = buckets[key]
            except KeyError:
                bucket = factory.add(key)
            decision: Decision = bucket.put_decision(RateItem(key, bucket.now()))  # type: ignore[assignment, no-untyped-call]
            _allowed = decision.allowed
            _remaining = amount - bucket.count()  # type: ignore[operator]
            _retry_after_ms = decision.retry_after_ms
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        item = self._factory.wrap_item(key)
        return cast("bool", self._factory.get(item).put(item))


class PyrateLimiter(Entry):
    """The documented way: `try_acquire` says yes or no, and the bucket knows the rest."""

    def __init__(self, quota: Quota, bucket_for: Callable[[list[Rate]], AbstractBucket]) -> None:
        self._amount = quota.amount
        self._factory = BucketPerKey(quota, bucket_for)
        self._limiter = Limiter(self._factory)

    def run(self, keys: Iterable[str]) -> int:
        limiter, factory, amount = self._limiter, self._factory, self._amount
        buckets = factory.buckets
        start = thread_time_ns()
        for key in keys:
            allowed = limiter.try_acquire(key, blocking=False)
            bucket = buckets[key]
            _remaining = amount - bucket.count()  # type: ignore[operator]
            _retry_after_ms = 0 if allowed else bucket.waiting(factory.wrap_item(key))
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return cast("bool", self._limiter.try_acquire(key, blocking=False))


def _token_bucket(rates: list[Rate]) -> AbstractBucket:
    return StateBucket(rates, ALGORITHM)


ALGORITHM = TokenBucket()
PYRATE = (
    Contestant(
        "pyrate-limiter",
        "token bucket",
        "part",
        lambda quota: PyrateBucket(quota, _token_bucket),
    ),
    Contestant(
        "pyrate-limiter",
        "sliding window log",
        "part",
        lambda quota: PyrateBucket(quota, InMemoryBucket),
        logs_every_hit=True,
    ),
    Contestant(
        "pyrate-limiter",
        "sliding window log in a Limiter",
        "full",
        lambda quota: PyrateLimiter(quota, InMemoryBucket),
        logs_every_hit=True,
        weighed=False,
    ),
)
