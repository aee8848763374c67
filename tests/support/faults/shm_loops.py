"""Event loops in several processes on one store in shared memory, beside CPU hogs: a program.

    python shm_loops.py URL PROCESSES HOGS LIMIT HITS

prints one line of JSON: how many hits were allowed, and by which source hits were decided.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import sys
from collections import Counter
from typing import TYPE_CHECKING

from headgate import AsyncRateLimiter
from headgate.limits import FixedWindow

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

YEAR = 365 * 86_400
KEYS = 10


def burn() -> None:
    """Use a processor until the end."""
    while True:
        sum(range(1_000))


async def hit(url: str, limit: int, hits: int) -> Counter[str]:
    """Hit each of a few keys, many at once; the decisions by source and result."""
    limiter = AsyncRateLimiter(FixedWindow(limit, 50 * YEAR), store=url, name="api")
    seen: Counter[str] = Counter()
    for _ in range(hits // KEYS):
        for decision in await asyncio.gather(*(limiter.hit(f"key {n}") for n in range(KEYS))):
            seen[decision.source] += 1
            seen["allowed"] += decision.allowed
    await limiter.aclose()
    return seen


def work(url: str, limit: int, hits: int, ready: Barrier, done: Queue[Counter[str]]) -> None:
    ready.wait()
    done.put(asyncio.run(hit(url, limit, hits)))


def main(url: str, processes: int, hogs: int, limit: int, hits: int) -> None:
    logging.basicConfig(level=logging.WARNING)
    context = multiprocessing.get_context("fork")
    ready, done = context.Barrier(processes), context.Queue()
    burning = [context.Process(target=burn, daemon=True) for _ in range(hogs)]
    working = [
        context.Process(target=work, args=(url, limit, hits, ready, done)) for _ in range(processes)
    ]
    for process in (*burning, *working):
        process.start()
    try:
        total: Counter[str] = sum((done.get(timeout=100) for _ in working), Counter())
    finally:
        for process in burning:
            process.kill()
    for process in working:
        process.join()
    sys.stdout.write(json.dumps(total))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
