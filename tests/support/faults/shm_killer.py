"""Workers on one store in shared memory that are killed all the time: run as a program.

    python shm_killing.py URL KILLS SEED

prints one line of JSON: what the workers say was admitted, what is left in the store, and how many
were killed. It is a process of its own, with one thread, because it forks.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import sys
import time
from fractions import Fraction
from typing import NoReturn

from headgate import RateLimiter
from headgate.limits import (
    FixedWindow,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.shm import ShmStore

YEAR = 365 * 86_400
KEYS = 40
QUOTA = 60
"""Of each key, for ever."""
STEADY = 1
"""Workers that are never killed."""

_COUNT = struct.Struct("<q")


class Counts:
    """Numbers in memory that parents and children share: one for each worker and limiter."""

    def __init__(self, many: int) -> None:
        self._memory = mmap.mmap(-1, many * _COUNT.size)
        self._many = many

    def add(self, place: int) -> None:
        at = place * _COUNT.size
        _COUNT.pack_into(self._memory, at, _COUNT.unpack_from(self._memory, at)[0] + 1)

    def every(self, step: int, start: int = 0, end: int | None = None) -> int:
        places = range(start, self._many if end is None else end, step)
        return sum(_COUNT.unpack_from(self._memory, n * _COUNT.size)[0] for n in places)


def limiters(url: str) -> list[RateLimiter]:
    """One for each way to write: a word of memory, a cell, the journal, and chains of blocks."""
    window, bucket = FixedWindow(QUOTA, 50 * YEAR), TokenBucket(QUOTA, Fraction(QUOTA, 90 * YEAR))
    log = SlidingWindowLog(QUOTA, 50 * YEAR)
    counter = SlidingWindowCounter(QUOTA, 50 * YEAR)
    kinds: tuple[tuple[str, list[Limit]], ...] = (
        ("window", [window]),
        ("bucket", [bucket]),
        ("counter", [counter]),
        ("stack", [window, bucket]),
        ("log", [log]),
    )
    store = ShmStore(url)
    return [
        RateLimiter(limits, store=store, name=name, on_store_failure="fail_closed")
        for name, limits in kinds
    ]


def work(kinds: list[RateLimiter], counts: Counts, number: int, pause: float) -> NoReturn:
    """Hit until nothing is left, with a *pause* of so many seconds in between."""
    chance = random.Random(number)
    live = [(kind, key) for kind in range(len(kinds)) for key in range(KEYS)]
    while live:
        place = chance.randrange(len(live))
        kind, key = live[place]
        if kinds[kind].hit(f"key {key}"):
            counts.add(number * len(kinds) + kind)
        else:
            live[place] = live[-1]
            live.pop()
        if pause:
            time.sleep(pause)
    os._exit(0)


def start(kinds: list[RateLimiter], counts: Counts, number: int, pause: float = 0) -> int:
    pid = os.fork()
    if not pid:
        work(kinds, counts, number, pause)
    return pid


def remaining(limiter: RateLimiter) -> list[int]:
    """What is left of each limit, all keys together."""
    looks = [limiter.peek(f"key {key}").limits for key in range(KEYS)]
    return [sum(part.remaining for part in parts) for parts in zip(*looks, strict=True)]


def main(url: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    kinds = limiters(url)
    remaining(kinds[0])
    many = len(kinds)
    counts = Counts((kills + 2 * STEADY) * many)
    steady = [start(kinds, counts, kills + n, 0.002) for n in range(STEADY)]
    killed = 0
    for number in range(kills):
        pid = start(kinds, counts, number)
        deadline = time.monotonic() + 10
        while not counts.every(1, number * many, (number + 1) * many):
            if time.monotonic() > deadline or counts.every(many) >= KEYS * QUOTA:
                break
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.001))
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    survivors = [start(kinds, counts, kills + STEADY + n) for n in range(STEADY)]
    ends = [os.waitpid(pid, 0)[1] for pid in steady + survivors]
    found = {
        "admitted": [counts.every(many, kind) for kind in range(many)],
        "left": [remaining(limiter) for limiter in kinds],
        "killed": killed,
        "admitted by the killed": counts.every(1, end=kills * many),
        "ends": ends,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
