"""A check of a request, interrupted at every `yield` in turn: it charges and holds nothing."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.integrations import CompletedResponse, RequestContext, RequestLimiter
from headgate.integrations.fair_queues import WaitForPlaces
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import read_policy
from headgate.runtime.drivers import adrive, drive
from tests.support.interruption import Recorder, interrupted_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.runtime.effects import Effect, Effects

POLICY = read_policy(
    """
version: 1
rules:
  - {id: once, key_by: ip, limit: 100/hour, idempotency: {ttl: 1h}}
  - {id: slots, key_by: ip, concurrency: {limit: 3, ttl: 1h}}
  - {id: rate, key_by: ip, limit: 50/hour fixed_window}
  - {id: turns, key_by: ip, fair: {slots: 3}}
"""
)
POST = Request("POST", "/", headers=(("idempotency-key", "k"),), peer="192.0.2.1")
(QUEUEING,) = CompiledPolicy(POLICY).plan(POST).queues


@pytest.fixture(autouse=True)
def _python_handles_ctrl_c() -> Iterator[None]:
    """Only under Python's own handler does the driver hold an interrupt back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Case:
    """Requests on a new store. A retry is one that was made and completed before."""

    def __init__(self, kind: str, *, is_retry: bool) -> None:
        self.kind = kind
        self.recorder = Recorder(has_futures=kind == "future")
        self.limiter = RequestLimiter(policy=POLICY, store=self.recorder)
        self.steps: list[Effect] = []
        if is_retry:
            first = RequestContext(self.limiter, POST)
            assert self._drive(first.begin(self.limiter, self.limiter.plan(POST)))
            self._drive(first.complete(CompletedResponse(200)))

    def check(self, place: int | None = None, when: str = "") -> RequestContext:
        context = RequestContext(self.limiter, POST)
        effects = context.begin(self.limiter, self.limiter.plan(POST))
        self._drive(interrupted_at(effects, place, self.recorder, when, self.steps))
        return context

    def state(self) -> dict[str, int]:
        """What is in use of each counter, and of the queue."""
        store = self.recorder.inner
        operations: list[Any] = [operation for operation, _ in self.recorder.done]
        checks = {
            (check.group, check.key)
            for operation in operations
            for take in getattr(operation, "takes", (operation,))
            for check in take.checks
        }
        used = {group: store.used_in(group, key) for group, key in checks}
        loads = self.limiter.queues.loads(QUEUEING)
        used["turns"] = sum(load.in_flight or 0 for load in loads)
        return {name: count for name, count in used.items() if count}

    def _drive(self, effects: Effects[object]) -> object:
        return drive(effects) if self.kind == "blocking" else asyncio.run(adrive(effects))


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("is_retry", [False, True], ids=["first", "retry"])
@pytest.mark.parametrize("kind", ["blocking", "coroutine", "future"])
def test_an_interrupted_check_gives_everything_back(
    kind: str, when: str, *, is_retry: bool
) -> None:
    whole = Case(kind, is_retry=is_retry)
    context = whole.check()
    assert context.is_replay == is_retry
    held = whole.state()
    assert held["turns"] == 1
    raised = KeyboardInterrupt if kind == "blocking" else asyncio.CancelledError
    for place, step in enumerate(whole.steps):
        if kind != "blocking" and isinstance(step, WaitForPlaces):
            continue  # it has its place at once, so no cancellation arrives there
        case = Case(kind, is_retry=is_retry)
        before = case.state()
        with pytest.raises(raised):
            case.check(place, when)
        assert case.state() == before, place
