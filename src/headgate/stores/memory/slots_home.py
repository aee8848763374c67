"""Where slots are kept: in one place, whichever limit they are asked for under."""

from __future__ import annotations

from functools import lru_cache

from headgate.algorithms import ConcurrencyAlgorithm
from headgate.limits import Concurrency


@lru_cache(maxsize=4096)
def slots_under(limit: Concurrency) -> tuple[ConcurrencyAlgorithm, Concurrency]:
    """The arithmetic of *limit*, and the limit under which its counters are kept.

    Leases do not depend on how many slots there are and whose they are. Each part of the callers,
    and each class of requests, asks the same counter under a limit of its own; to carry it over
    for each of them would take longer than all the rest.
    """
    return ConcurrencyAlgorithm(limit), Concurrency(1, limit.ttl)
