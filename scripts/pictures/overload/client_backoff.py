"""Clients before the same app, some of whom look at what its responses say of the queue.

The app has the real middleware, with one rule (`fair`) that lets so many requests in at a time.
Each client has jobs that come at random; for a while there are more of them than the app can do.
Who heeds nothing sends each job as it comes, and a refused one again a moment later. Who heeds has
a pace: less while requests wait in the queue of the app, more while none does; what it does not
send waits at home. Everything is on virtual time.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy_data
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from scripts.pictures.overload.backend import service_times

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.integrations.asgi import App, Message, Receive, Scope, Send

TAKES: Final = 0.2
"""Seconds that a request takes on average once it has its turn."""

_WAIT: Final = re.compile(r";wait=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Plot:
    """What happens: so many *clients*, with *usual* jobs a second in all, and *more* of them from
    *begin* to *end*, in seconds. The app does *slots* / `TAKES` a second."""

    clients: int = 10
    slots: int = 40
    max_wait: float = 1.0
    usual: float = 100.0
    more: float = 300.0
    begin: int = 10
    end: int = 30
    until: int = 60
    seed: int = 1

    @property
    def capacity(self) -> float:
        """Requests a second that the app can do."""
        return self.slots / TAKES

    def demand(self, second: float) -> float:
        """Jobs a second that come then."""
        return self.more if self.begin <= second < self.end else self.usual


@dataclass(slots=True)
class Course:
    """What came of it, by second."""

    jobs: int = 0
    done: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    waits: dict[int, list[float]] = field(default_factory=dict)
    given_up: int = 0

    def rate(self, counts: Counter[int], begin: int, end: int) -> float:
        """How many a second from *begin* to *end*."""
        return sum(counts[second] for second in range(begin, end)) / (end - begin)

    def wait(self, begin: int, end: int) -> float:
        """How long those waited in the queue of the app who were answered then; the mean."""
        waits = [one for second in range(begin, end) for one in self.waits.get(second, ())]
        return sum(waits) / len(waits) if waits else 0.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a response says: its status, and of the fields that matter here what they tell."""

    status: int
    queue_wait: float = 0.0
    delay: float = 0.0
    retry_after: float | None = None


class Client(Protocol):
    """One who has jobs for the app."""

    def add(self) -> None:
        """There is one more to do."""


class Careless:
    """Sends every job as it comes. A refused one is sent again soon, twice, and then given up."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._chance = chance

    def add(self) -> None:
        self._site.start(self._job())

    async def _job(self) -> None:
        for _ in range(3):
            said = await self._site.ask()
            if said.status == 200:
                return
            await asyncio.sleep(0.2 * self._chance.uniform(0.5, 1.5))
        self._site.course.given_up += 1


class Heedful:
    """Has so many requests under way at a time, and keeps at home what it may not send yet.

    Every response says how long one that came now would wait (`Headgate-Queue`). As long as that is
    more than `AIM`, it has fewer under way with each, else more. After a refusal it has half as
    many, and sends nothing until `Retry-After`; the job is tried again.
    """

    AIM: Final = 0.05

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._chance = chance
        self._jobs = 0
        self._under_way = 0
        self._most = 4.0
        self._quiet_until = 0.0

    def add(self) -> None:
        self._jobs += 1
        self._send()

    def _send(self) -> None:
        while self._jobs and self._under_way < int(self._most):
            self._jobs -= 1
            self._under_way += 1
            self._site.start(self._job())

    async def _job(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(self._quiet_until - loop.time(), 0))
        said = await self._site.ask()
        self._under_way -= 1
        self._jobs += said.status != 200
        self._heard(said, loop.time())
        self._send()

    def _heard(self, said: Said, now: float) -> None:
        if said.retry_after is not None and now >= self._quiet_until:
            self._quiet_until = now + said.retry_after
            self._most = max(self._most / 2, 1)
        elif said.queue_wait > self.AIM:
            self._most = max(self._most - 1 / self._most, 1)
        elif self._jobs:
            self._most += 1 / self._most


class Site:
    """The app behind its middleware, and what came of the requests to it."""

    def __init__(self, plot: Plot, loop: VirtualLoop) -> None:
        fair = {"slots": plot.slots, "queue": 10_000, "max_wait": f"{plot.max_wait}s"}
        policy = {"version": 1, "rules": [{"id": "turns", "key_by": "global", "fair": fair}]}
        self.course = Course()
        self._loop = loop
        self._app: App = RateLimitMiddleware(
            _app(service_times(TAKES, seed=plot.seed)),
            policy=read_policy_data(policy),
            clock=loop.time_ns,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it meanwhile."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ask(self) -> Said:
        """Send one request, and note what came of it."""
        head: list[Message] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.append(message)

        await self._app(_scope(), _receive, send)
        said = _read(head[0])
        second = int(self._loop.time())
        if said.status == 200:
            self.course.done[second] += 1
            self.course.waits.setdefault(second, []).append(said.delay)
        else:
            self.course.refused[second] += 1
        return said


def _app(takes: Callable[[], float]) -> App:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await asyncio.sleep(takes())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    return app


def _scope() -> Scope:
    peer = "203.0.113.7", 1
    return {"type": "http", "method": "GET", "path": "/", "headers": [], "client": peer}


async def _receive() -> Message:
    await asyncio.get_running_loop().create_future()  # the client neither says more nor leaves
    raise AssertionError


def _read(head: Message) -> Said:
    lines = {name.decode().lower(): value.decode() for name, value in head["headers"]}
    queue = _WAIT.search(lines.get("headgate-queue", ""))
    after = lines.get("retry-after")
    return Said(
        head["status"],
        queue_wait=float(queue.group(1)) if queue else 0.0,
        delay=float(lines.get("headgate-delay", 0)),
        retry_after=None if after is None else float(after),
    )


def play(plot: Plot, make: Callable[[Site, random.Random], Client]) -> Course:
    """The same jobs each time; only what the clients make of the responses differs."""
    return run_virtually(_play(plot, make))


async def _play(plot: Plot, make: Callable[[Site, random.Random], Client]) -> Course:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    site = Site(plot, loop)
    chance = random.Random(plot.seed)
    clients = [make(site, random.Random(f"{plot.seed} {n}")) for n in range(plot.clients)]
    while loop.time() < plot.until:
        await asyncio.sleep(chance.expovariate(plot.demand(loop.time())))
        site.course.jobs += 1
        chance.choice(clients).add()
    return site.course
