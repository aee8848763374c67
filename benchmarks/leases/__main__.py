"""A decision from a lease beside the in-process decision, in one process.

    python -m benchmarks.leases [--hits N]

The store behind the leases is in the same process, so what is measured is what this side costs: the
quick way, and the share of each hit in an exchange. Both hitters are timed in turns.
"""

from __future__ import annotations

import argparse
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from headgate.limits import Accuracy, TokenBucket
from headgate.stores.leased import LeasedStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Charge, Check, Operation

if TYPE_CHECKING:
    from headgate.stores.port import Hitter

R = TypeVar("R")

LIMIT = TokenBucket(10**9, 1_000)
ROUNDS = 9
GOAL = 2.0


class Counted(MemoryStore):
    """A store that knows how often it was asked."""

    asked = 0

    def run(self, operation: Operation[R]) -> R:
        self.asked += 1
        return super().run(operation)


def nanoseconds_a_hit(hit: Hitter, hits: int) -> float:
    began = perf_counter_ns()
    for _ in range(hits):
        hit("user:42", 1)
    return (perf_counter_ns() - began) / hits


def measure(batch: int, hits: int) -> str:
    inner = Counted()
    inner.run(Charge((Check("group", "user:42", LIMIT, 10**6),)))
    store = LeasedStore(inner)
    store.adopt({"group": Accuracy(batch=batch)})
    leased = store.hitter((("group", LIMIT),))
    near = MemoryStore().hitter((("group", LIMIT),))
    assert leased is not None
    assert near is not None
    nanoseconds_a_hit(leased, 20 * batch)
    inner.asked = 0
    pairs = [
        (nanoseconds_a_hit(leased, hits), nanoseconds_a_hit(near, hits)) for _ in range(ROUNDS)
    ]
    asked = inner.asked / (ROUNDS * hits)
    store.close()
    own, other = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    verdict = "met" if own <= GOAL * other else "MISSED"
    return (
        f"{batch:>7} {own:>10.0f} {other:>10.0f} {own / other:>7.2f} {asked:>12.5f} "
        f"{1 / batch:>10.5f}  {verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hits", type=int, default=50_000, help="hits of each sample")
    hits = parser.parse_args().hits
    print("  batch  leased ns  memory ns   ratio  asked a hit  1 / batch  goal: twice at most")
    for batch in (10, 100, 1_000, 10_000):
        print(measure(batch, hits))


if __name__ == "__main__":
    main()
