"""A random history is the same in shared memory as in the memory of one process."""

from random import Random, randrange
from typing import Any

import pytest

from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Operation,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing import ManualClock
from tests.support.shm_stores import fresh_store

RATES: tuple[Limit, ...] = (
    TokenBucket(10, 3),
    GCRA(rate=7_000, burst=10),
    LeakyBucket(3, 13),
    FixedWindow(10, 7),
    SlidingWindowLog(10, 3),
    SlidingWindowCounter(10, 10),
    SlidingWindowCounter(10, 5, subwindows=3),
)
SLOTS = (Concurrency(3, 5), Concurrency(2, 9))
STEPS = 500


def some_checks(random: Random) -> tuple[Check, ...]:
    """Counters of a few groups, whose limits change from one operation to the next."""
    many = random.choice((1, 1, 2, 3))
    groups = random.sample("abcd", many)
    return tuple(
        Check(group, random.choice(("k1", "k2", "k3")), random.choice(RATES), random.randrange(6))
        for group in groups
    )


def some_operation(random: Random) -> Operation[Any]:
    checks = some_checks(random)
    name, lease = f"h{random.randrange(4)}", f"l{random.randrange(5)}"
    slots = (Check("slots", "key", random.choice(SLOTS)),)
    made: list[Operation[Any]] = [
        *[Take(checks)] * 6,
        Take(checks, consume=False),
        TakeEach((Take(checks), Take(some_checks(random)))),
        Hold(checks, name, random.randrange(1, 10**10)),
        Settle(checks, name, charge_lapsed=random.random() < 0.5),
        Charge(checks),
        Refund(checks),
        Reset(checks[:1]),
        Take(slots, lease=lease),
        RenewSlot(slots, lease),
        ReleaseSlot(slots, lease),
    ]
    return random.choice(made)


def replies(store: Store, operation: Operation[Any]) -> object:
    """The reply of *store*; takes are prepared, some of them anew each time."""
    if isinstance(operation, Take) and operation.consume and operation.lease is None:
        checks = operation.checks
        prepared = store.prepare([(check.group, check.limit) for check in checks])
        return prepared.take([check.key for check in checks], [check.cost for check in checks])
    return store.run(operation)


@pytest.mark.parametrize("round_number", range(3))
def test_every_reply_is_that_of_the_memory_store(round_number: int) -> None:
    seed = randrange(2**32)
    random, clock = Random(seed), ManualClock(1_700_000_000)
    memory = MemoryStore(clock=clock)
    with fresh_store(clock, "size=1MB") as shared:
        for step in range(STEPS):
            clock.advance_ns(random.choice((0, 1, 10**6, 10**8, 10**9)))
            operation = some_operation(random)
            said, expected = replies(shared, operation), replies(memory, operation)
            assert said == expected, f"seed {seed}, step {step}: {operation}"
