"""Limits that are larger by some units."""

import pytest

from headgate.errors import LimitError
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    with_extra,
)
from headgate.limits.model import LARGEST_QUOTA


@pytest.mark.parametrize(
    ("limit", "larger"),
    [
        (TokenBucket(10, 1.67), TokenBucket(15, 1.67)),
        (GCRA(2, 10), GCRA(2, 15)),
        (LeakyBucket(10, 2), LeakyBucket(15, 2)),
        (FixedWindow(10, 60), FixedWindow(15, 60)),
        (SlidingWindowLog(10, 60), SlidingWindowLog(15, 60)),
        (SlidingWindowCounter(10, 60, 6), SlidingWindowCounter(15, 60, 6)),
        (Concurrency(10, 60), Concurrency(15, 60)),
        (Concurrency(10, 60, (("a", 3),)), Concurrency(15, 60, (("a", 3),))),
        (LeakyQueue(2, 10), LeakyQueue(2, 15)),
        (LeakyQueue(2, 10, 60), LeakyQueue(2, 15, 60)),
    ],
    ids=str,
)
def test_every_kind_of_limit_grows_by_its_quota_alone(limit: Limit, larger: Limit) -> None:
    assert with_extra(limit, 5) == larger
    assert with_extra(limit, 5).quota == limit.quota + 5


@pytest.mark.parametrize(
    "limit", [FixedWindow(10, 60), TokenBucket(10, 0.01), LeakyQueue(2, 10)], ids=str
)
def test_what_no_limit_can_be_is_refused(limit: Limit) -> None:
    with pytest.raises(LimitError):
        with_extra(limit, LARGEST_QUOTA)
