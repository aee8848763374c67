"""One limit of each kind that counts, for what holds for all of them alike."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from tests.support.histories import SECOND
from tests.support.oracles import (
    CounterOracle,
    FixedWindowOracle,
    GCRAOracle,
    LeakyBucketOracle,
    LogOracle,
    Oracle,
    TokenBucketOracle,
)

if TYPE_CHECKING:
    from headgate.limits import Limit

KINDS = ("token_bucket", "gcra", "leaky_bucket", "fixed_window", "log", "counter", "cells")


def limit_of(kind: str, quota: int, window: int) -> Limit:
    """*quota* in *window* nanoseconds, as a limit of *kind*."""
    rate, seconds = Fraction(quota * SECOND, window), Fraction(window, SECOND)
    limits: dict[str, Limit] = {
        "token_bucket": TokenBucket(quota, rate),
        "gcra": GCRA(rate, quota),
        "leaky_bucket": LeakyBucket(quota, rate),
        "fixed_window": FixedWindow(quota, seconds),
        "log": SlidingWindowLog(quota, seconds),
        "counter": SlidingWindowCounter(quota, seconds),
        "cells": SlidingWindowCounter(quota, seconds, 3),
    }
    return limits[kind]


def oracle_of(kind: str, quota: int, window: int) -> Oracle:
    """The oracle of `limit_of` the same."""
    rate = Fraction(quota * SECOND, window)
    oracles: dict[str, Oracle] = {
        "token_bucket": TokenBucketOracle(quota, rate),
        "gcra": GCRAOracle(rate, quota),
        "leaky_bucket": LeakyBucketOracle(quota, rate),
        "fixed_window": FixedWindowOracle(quota, window),
        "log": LogOracle(quota, window),
        "counter": CounterOracle(quota, window, 1),
        "cells": CounterOracle(quota, window, 3),
    }
    return oracles[kind]


def admissible(kind: str, quota: int, window: int, start: int, end: int) -> Fraction:
    """The most that a limit of *kind* may admit from *start* to *end*."""
    if kind in ("token_bucket", "gcra", "leaky_bucket"):
        return quota + Fraction(quota * (end - start), window)
    if kind == "log":
        return Fraction(quota * ((end - start) // window + 1))
    subwindows = 3 if kind == "cells" else 1
    cells = end * subwindows // window - start * subwindows // window + 1
    return Fraction(quota * -(-cells // subwindows))


KIND = st.sampled_from(KINDS)
