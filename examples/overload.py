"""Twice as much to do as can be done, under six rules.

An app has a backend that does 50 requests a second, and half of that for the last six seconds. A
customer's script sends 75 a second in a loop; a shop sends 20, of which 5 are payments; a nightly
export sends 15. Everybody waits for a second, and then leaves; the backend does not notice, and
works for those who have left as well. Each line is the same 18 seconds under another rule, with
the real middleware, on virtual time: all of it takes some seconds.

    python examples/overload.py
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter, deque
from typing import Any, cast

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy_data
from headgate.testing import VirtualLoop, run_virtually

WORKERS, TAKES, PATIENCE = 10, 0.2, 1.0
SECONDS, HALVED = 18, 12
SENDERS = (
    ("script", "/search", 75),
    ("shop", "/basket", 15),
    ("shop", "/pay", 5),
    ("export", "/export", 15),
)
CLASSES = [
    {"class": "critical", "match": {"endpoint": "/pay"}},
    {"class": "sheddable", "match": {"endpoint": "/export"}},
]
ADAPTIVE = {"adaptive": "gradient", "min": 5, "max": 100}

RULES: dict[str, dict[str, Any]] = {
    "no rule": {},
    "limit": {"key_by": "tenant", "limit": "25/s"},
    "concurrency": {"key_by": "global", "concurrency": 30},
    "fair": {"key_by": "tenant", "fair": {"slots": 30, "max_wait": "200ms"}},
    "fair, slots adapt": {"key_by": "tenant", "fair": {"slots": ADAPTIVE, "max_wait": "200ms"}},
    "the same, by priority": {
        "key_by": "tenant",
        "fair": {"slots": ADAPTIVE, "max_wait": "200ms", "reserve": {"critical": "20%"}},
    },
}


class Backend:
    """So many workers, and a queue without end before them."""

    def __init__(self, chance: random.Random) -> None:
        self.workers = WORKERS
        self._chance = chance
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._busy >= self.workers:
            self._waiting.append(called := asyncio.get_running_loop().create_future())
            await called
        self._busy += 1
        await asyncio.sleep(self._chance.gammavariate(2, TAKES / 2))
        self._busy -= 1
        for _ in range(min(self.workers - self._busy, len(self._waiting))):
            self._waiting.popleft().set_result(None)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


class Callers:
    """All who send requests to *app*, and what they got."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []

    async def send(self, tenant: str, path: str, rate: float) -> None:
        chance, requests = random.Random(path), set()  # noqa: S311 (not a secret)
        while asyncio.get_running_loop().time() < SECONDS:
            requests.add(asyncio.create_task(self.ask(tenant, path)))
            await asyncio.sleep(chance.expovariate(rate))
        await asyncio.wait(requests, timeout=PATIENCE)

    async def ask(self, tenant: str, path: str) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        self.sent[path] += 1
        headers = [(b"x-tenant-id", tenant.encode())]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        status = await self._status(scope | {"client": ("203.0.113.7", 1)})
        took = now() - began
        self.statuses[status] += 1
        if status == 200 and took <= PATIENCE:
            self.answered[path] += 1
            self.times.append(took)

    async def _status(self, scope: dict[str, Any]) -> int:
        said: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        await self.app(scope, _nothing_more, send)
        status: int = said[0]["status"]
        return status


async def _nothing_more() -> dict[str, Any]:
    await asyncio.sleep(10 * SECONDS)
    return {"type": "http.disconnect"}


async def play(rule: dict[str, Any]) -> Callers:
    """What all get under *rule*."""
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    backend = Backend(random.Random(1))  # noqa: S311 (not a secret)
    loop.call_at(HALVED, setattr, backend, "workers", WORKERS // 2)
    policy = {"version": 1, "rules": [{"id": "backend"} | rule] if rule else []}
    if "reserve" in rule.get("fair", ()):
        policy["priority"] = CLASSES
    app = RateLimitMiddleware(backend, policy=read_policy_data(policy), clock=loop.time_ns)
    callers = Callers(app)
    await asyncio.gather(*(callers.send(*sender) for sender in SENDERS))
    return callers


def main() -> None:
    print("answered within a second, of what was sent:\n")
    print(f"{'':24}{'script':>8}{'shop':>8}{'payments':>10}{'export':>8}", end="")
    print(f"{'answers':>11}{'median':>9}  denied with")
    for name, rule in RULES.items():
        found = run_virtually(play(rule))
        shares = [f"{found.answered[path] / found.sent[path]:.0%}" for _, path, _ in SENDERS]
        rate = f"{len(found.times) / SECONDS:.0f}/s"
        median = f"{1000 * statistics.median(found.times):.0f} ms"
        denied = ", ".join(str(status) for status in sorted(found.statuses) if status != 200)
        print(f"{name:24}{{:>8}}{{:>8}}{{:>10}}{{:>8}}".format(*shares), end="")
        print(f"{rate:>11}{median:>9}  {denied or 'none'}")


if __name__ == "__main__":
    main()
