"""What is refused at any stage of its way leaves nothing behind: random stacks of limits, queues,
slots and turns, in apps that block and in those that do not."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from headgate.engine.request import Request
from headgate.integrations import CompletedResponse, RequestContext, RequestLimiter, RouteLimit
from headgate.integrations.route_limit import named_limits
from headgate.limits import Concurrency, LeakyQueue, SlidingWindowLog, TokenBucket
from headgate.policy.loader import read_policy_data
from headgate.runtime.drivers import adrive, drive
from headgate.stores.operations import Check, Take
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from headgate.stores import MemoryStore

REFUSED = CompletedResponse(429)
STEPS = 25


class Standing(ManualClock):
    """A clock on which waiting takes no time: a caller that waited still has its place."""

    def sleep(self, seconds: float) -> None:
        """Do not wait."""

    async def asleep(self, seconds: float) -> None:
        """Do not wait."""


class Stack:
    """The way of requests through a limiter with rules, and parts of an app behind it."""

    def __init__(self, seed: int, *, is_async: bool) -> None:
        self.random, self.is_async, self.clock = random.Random(seed), is_async, Standing(1_000)
        rules = [self._rule(f"rule-{place}") for place in range(self.random.randint(1, 4))]
        priority = [{"class": "critical", "match": {"method": "POST"}}]
        policy = read_policy_data({"version": 1, "priority": priority, "rules": rules})
        self.limiter = RequestLimiter(policy=policy, clock=self.clock, key=lambda _: "somebody")
        self.store = cast("MemoryStore", self.limiter.engine.store)
        self.parts = [[self._allowance(n, p) for p in "ab"] for n in range(2)]
        self.known: set[Check] = set()

    def _rule(self, name: str) -> dict[str, Any]:
        few = self.random.randint(1, 3)
        forms: tuple[dict[str, Any], ...] = (
            {"limit": f"{few}/s"},
            {"limit": "2/s peak 5/s for 3s", "idempotency": True},
            {"shape": {"rate": f"{few}/s", "queue": 4}},
            {"concurrency": {"limit": few, "reserve": {"critical": "30%"}}},
            {
                "concurrency": {
                    "limit": 4,
                    "share_by": "tier",
                    "shares": {"paid": 2},
                    "lends": False,
                }
            },
            {"fair": {"slots": few, "queue": 0}},
        )
        return {"id": name, "key_by": "global", **self.random.choice(forms)}

    def _allowance(self, number: int, part: str) -> RouteLimit:
        few = self.random.randint(1, 3)
        limits = (LeakyQueue(few, 3), TokenBucket(few, 1), Concurrency(few, 60))
        chosen = self.random.sample((*limits, SlidingWindowLog(few, 5)), k=few)
        outcomes = self.random.choice((None, lambda responded: responded.status_code < 400))
        is_estimate = self.random.random() < 0.3
        return RouteLimit(
            limits=chosen,
            key=lambda _: "somebody",
            cost=self.random.randint(1, 2),
            name=f"{part}{number}",
            charge_when=outcomes,
            is_estimate=is_estimate,
        )

    def request(self) -> Request:
        key = ("idempotency-key", str(self.random.randint(0, 5)))
        lines = (("x-tier", self.random.choice(("paid", "free"))), key)
        return Request(self.random.choice(("GET", "POST")), "/", headers=lines, peer="192.0.2.1")

    def asking(self, request: Request) -> list[Any]:
        stages = [named_limits(tuple(part), "", "") for part in self.parts]
        behind = [self.limiter.plan_route(stage, request, request) for stage in stages]
        return [self.limiter.plan(request), *behind]

    def fill_queues(self, request: Request) -> None:
        """Check that no caller gets its place at once: that cannot be given back."""
        for asking in self.asking(request):
            entry = drive(asking)
            for check in [check for one in entry.plan.rules for check in one.checks]:
                self.known.add(check)
                if isinstance(check.limit, LeakyQueue):
                    look = Take((check,), consume=False)
                    if not self.store.run(look)[0].delay_ns:
                        self.store.run(Take((check,)))

    def passes(self, context: RequestContext, request: Request) -> bool:
        async def go() -> bool:
            for asking in self.asking(request):
                if not await adrive(context.begin(self.limiter, asking)):
                    return False
            return True

        if self.is_async:
            return asyncio.run(go())
        return all(drive(context.begin(self.limiter, asking)) for asking in self.asking(request))

    def finish(self, context: RequestContext, responded: CompletedResponse) -> None:
        if self.is_async:
            asyncio.run(adrive(context.complete(responded)))
        else:
            drive(context.complete(responded))

    def state(self) -> dict[object, object]:
        """What all counters say, and who has a turn."""
        found: dict[object, object] = {}
        for check in self.known:
            found[check] = tuple(self.store.run(Take((check,), consume=False))[0][:5])
        for group in self.store.groups():
            for key in self.store.keys_in(group, most=100):
                found[group, key] = self.store.used_in(group, key)
        found |= {
            limiter.name: (limiter.in_flight, limiter.depth)
            for limiter in self.limiter.queues.gates()
        }
        return {place: said for place, said in found.items() if said not in (0, (0, 0))}


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize("seed", range(8))
def test_a_refused_request_leaves_all_counters_as_they_were(seed: int, *, is_async: bool) -> None:
    stack = Stack(seed, is_async=is_async)
    under_way: list[RequestContext] = []
    refused = 0
    for _ in range(STEPS):
        request = stack.request()
        stack.fill_queues(request)
        before = stack.state()
        context = RequestContext(stack.limiter, request, is_managed=True)
        if stack.passes(context, request):
            under_way.append(context)
        else:
            refused += 1
            stack.finish(context, REFUSED)
            assert stack.state() == before, f"seed {seed}"
        if under_way and stack.random.random() < 0.5:
            status = stack.random.choice((200, 404, 500))
            stack.finish(under_way.pop(0), CompletedResponse(status))
        stack.clock.advance(stack.random.choice((0, 0.5, 3)))
    assert refused
