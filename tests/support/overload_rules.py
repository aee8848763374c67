"""Rules and policies of all kinds that delay, have slots or take turns, for property tests."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from headgate.limits import Concurrency, LeakyQueue
from headgate.policy.model import PRIORITIES, Adaptive, AdaptiveSlots, Fair, Pressure, PriorityClass
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.model import Match, Rule

RATES = st.fractions(Fraction(1, 100), 10_000, max_denominator=1000)
SPANS = st.integers(1, 10**6).map(lambda n: n * MILLISECOND)
PERCENT = st.integers(1, 9_999).map(lambda n: Fraction(n, 10_000))
NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,9}", fullmatch=True).filter(lambda name: name != "default")

QUEUES = st.builds(
    LeakyQueue,
    RATES,
    st.integers(0, 900_000),
    st.none() | st.just(0) | st.integers(1, 10**9).map(lambda n: Fraction(n, 1000)),
)
RESERVES: st.SearchStrategy[Any] = st.one_of(
    st.just({}),
    st.builds(lambda share: {"critical": share}, PERCENT),
    st.builds(
        lambda one, other: {"critical": one / 2, "default": other / 2 + Fraction(1, 10_000)},
        PERCENT,
        PERCENT.filter(lambda share: share < Fraction(9, 10)),
    ),
)


def shared(names: st.SearchStrategy[str]) -> st.SearchStrategy[Concurrency]:
    """Slots with shares of *names*."""
    shares = st.dictionaries(names, st.integers(1, 30), min_size=1, max_size=3)
    return st.builds(
        lambda limit, ttl, own, lends: Concurrency(
            limit, ttl, tuple(own.items()) if own else (), lends=lends
        ),
        st.integers(100, 10**6),
        st.integers(1, 10**6).map(lambda n: Fraction(n, 1000)),
        shares,
        st.booleans(),
    )


FAIRS = st.builds(
    lambda budget, rest, reserve: Fair(
        **budget, **rest, reserve=reserve if "rate" not in budget else {}
    ),
    st.one_of(
        st.fixed_dictionaries({"slots": st.integers(1, 10**6)}),
        st.fixed_dictionaries({"rate": RATES}),
        st.fixed_dictionaries(
            {
                "slots": st.builds(
                    AdaptiveSlots,
                    st.sampled_from(("gradient", "aimd")),
                    st.integers(1, 10),
                    st.integers(10, 10**6),
                    st.none() | SPANS,
                )
            }
        ),
    ),
    st.fixed_dictionaries(
        {
            "weights": st.dictionaries(st.none() | NAMES, st.integers(1, 1000), max_size=3),
            "queue": st.integers(0, 1_000_000),
            "max_wait_ns": st.just(0) | SPANS,
        }
    ),
    RESERVES,
)
PRESSURES = st.builds(
    Pressure,
    st.none() | SPANS,
    PERCENT,
    st.none() | PERCENT,
    st.none() | st.integers(0, 10**6),
    st.integers(10, 10**6).map(lambda n: n * MILLISECOND),
    PERCENT,
    PERCENT | st.just(Fraction(1)),
    PERCENT | st.just(Fraction(1)),
)


def priorities(matches: st.SearchStrategy[Match]) -> st.SearchStrategy[tuple[PriorityClass, ...]]:
    """Classes of requests that *matches* are for."""
    return st.lists(st.builds(PriorityClass, st.sampled_from(PRIORITIES), matches), max_size=3).map(
        tuple
    )


def _changed(**changes: Any) -> Callable[[Rule], Rule]:
    """Makes the same rule with *changes*, and nothing charged afterwards."""
    return lambda rule: replace(rule, cost=replace(rule.cost, after=None), **changes)


SOFTENED: st.SearchStrategy[Callable[[Rule], Rule]] = st.one_of(
    st.just(lambda rule: rule),
    PERCENT.map(lambda floor: lambda rule: replace(rule, adaptive=Adaptive(floor))),
    QUEUES.map(lambda queue: _changed(limits={None: (queue,)})),
    st.builds(
        lambda slots, kept: _changed(limits={None: (slots,)}, reserve=kept, share_by="tenant"),
        shared(NAMES),
        RESERVES,
    ),
    st.builds(
        lambda slots, more: _changed(limits={None: (slots, *more)}, share_by="priority"),
        shared(st.sampled_from(PRIORITIES)),
        st.lists(QUEUES, max_size=1),
    ),
    FAIRS.map(lambda fair: _changed(limits={}, fair=fair)),
)
"""What makes of a rule itself, one with a floor, or one with a queue, slots or turns instead."""
