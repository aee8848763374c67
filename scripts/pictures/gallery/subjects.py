"""The algorithms of the gallery: the real ones, through the real limiter, on a clock of our own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate import RateLimiter
from headgate.overload import AsyncShaper
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from headgate.units import MILLISECOND, SECOND
from scripts.pictures.gallery.traffic import QUOTA, SECONDS, WINDOW, Course, arrivals, in_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.decision import Decision

_KEY: Final = "key"
_SAMPLED_NS: Final = 50 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Subject:
    """An algorithm, how its state is read from a peek, and what stands beside its picture."""

    name: str
    title: str
    limit: str
    state_title: str
    state_of: Callable[[Decision], float]
    bound: float
    """Where the state is at its bound."""
    bound_title: str

    @property
    def is_stepped(self) -> bool:
        """Whether the state is a number of requests, rather than one that flows."""
        return self.state_of is _used


def _used(decision: Decision) -> float:
    return QUOTA - decision.remaining


def _tokens(decision: Decision) -> float:
    return QUOTA - in_seconds(decision.limits[0].reset_after_ns) * QUOTA / WINDOW


def _level(decision: Decision) -> float:
    return in_seconds(decision.reset_after_ns) * QUOTA / WINDOW


def _ahead(decision: Decision) -> float:
    return in_seconds(decision.reset_after_ns)


SUBJECTS: Final = (
    Subject(
        "fixed-window",
        "Fixed window",
        "10/10s fixed_window",
        "admitted in this window; from zero at 10 s, 20 s, ...",
        _used,
        QUOTA,
        "limit",
    ),
    Subject(
        "sliding-window-log",
        "Sliding window log",
        "10/10s sliding_window_log",
        "admitted in the last 10 s: each leaves when it is 10 s old",
        _used,
        QUOTA,
        "limit",
    ),
    Subject(
        "sliding-window-counter",
        "Sliding window counter",
        "10/10s sliding_window_counter",
        "the estimate of what was admitted in the last 10 s",
        _used,
        QUOTA,
        "limit",
    ),
    Subject(
        "token-bucket",
        "Token bucket",
        "10/10s token_bucket",
        "tokens in the bucket: one comes back each second",
        _tokens,
        QUOTA,
        "full",
    ),
    Subject(
        "leaky-bucket",
        "Leaky bucket, as a meter",
        "10/10s leaky_bucket",
        "level of the bucket: it leaks one a second",
        _level,
        QUOTA,
        "brim",
    ),
    Subject(
        "gcra",
        "GCRA",
        "10/10s gcra",
        "seconds that the next regular time is ahead of now",
        _ahead,
        WINDOW,
        "tolerance",
    ),
    Subject(
        "burst-credits",
        "Burst credits",
        "1/s peak 3/s for 4s burst 2",
        "credits saved: one a second is added, no more than 3 a second are spent",
        _tokens,
        QUOTA,
        "ceiling",
    ),
)
QUEUE: Final = Subject(
    "leaky-queue",
    "Leaky bucket, as a queue",
    "1/s, queue of 10",
    "requests that wait for their turn",
    _used,
    QUOTA,
    "full",
)
ALL: Final = (*SUBJECTS[:5], QUEUE, *SUBJECTS[5:])
"""In the order of the page: the two leaky buckets beside each other."""


def run(subject: Subject) -> Course:
    """What *subject* makes of the requests."""
    if subject is QUEUE:
        return run_virtually(_queued())
    return course_of(subject, arrivals(), SECONDS)


def course_of(subject: Subject, times: list[int], seconds: int) -> Course:
    """What *subject* makes of requests at *times*, in nanoseconds, in the first *seconds*."""
    clock = ManualClock()
    limiter = RateLimiter(subject.limit, clock=clock)
    course = Course()

    def look(now_ns: int) -> None:
        clock.advance_ns(now_ns - clock())
        course.state.append((in_seconds(now_ns), subject.state_of(limiter.peek(_KEY))))

    samples = range(0, seconds * SECOND + 1, _SAMPLED_NS)
    for now_ns, is_request in sorted(
        [(at, False) for at in samples] + [(at, True) for at in times]
    ):
        look(now_ns)
        if is_request:
            course.came.append(in_seconds(now_ns))
            kept = course.admitted if limiter.hit(_KEY) else course.refused
            kept.append(in_seconds(now_ns))
            look(now_ns)
    return course


async def _queued() -> Course:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    shaper = AsyncShaper("1/s", queue=QUOTA, clock=loop.time_ns)
    course = Course()

    async def request() -> None:
        now = loop.time()
        turn = await shaper.acquire(_KEY)
        (course.admitted if turn else course.refused).append(loop.time() if turn else now)

    times = arrivals()
    tasks = []
    for step in range(SECONDS * 20 + 1):
        now = step / 20
        await asyncio.sleep(now - loop.time())
        for at in [one for one in times if now <= in_seconds(one) < now + 0.05]:
            course.came.append(in_seconds(at))
            await asyncio.sleep(max(in_seconds(at) - loop.time(), 0))
            tasks.append(loop.create_task(request()))
            await asyncio.sleep(0)
            course.state.append((loop.time(), await shaper.depth(_KEY)))
        course.state.append((loop.time(), await shaper.depth(_KEY)))
    await asyncio.gather(*tasks)
    return course
