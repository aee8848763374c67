"""Every use case, interrupted at every `yield` in turn, in both drivers: nothing stays charged."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.plan import CompiledRule, Plan, plan_rule
from headgate.engine.request import Request
from headgate.engine.use_cases import Engine
from headgate.limiter import AsyncRateLimiter
from headgate.limiter.holds import AsyncReservation
from headgate.limits import Concurrency, LeakyQueue, parse_limits
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import read_policy
from headgate.policy.model import Match, Policy, Rule
from headgate.runtime.drivers import adrive, drive
from headgate.stores.base import Hit
from tests.support.interruption import Recorder, interrupted_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.limits import Limit
    from headgate.runtime.effects import Effect, Effects

POLICY = """
version: 1
rules:
  - {id: plain, match: {endpoint: /plain}, key_by: ip, limit: 100/hour}
  - {id: other, match: {endpoint: /plain}, key_by: ip, limit: 50/hour fixed_window}
  - {id: beside, match: {endpoint: /shadow}, key_by: ip, limit: 100/hour}
  - {id: shadow, match: {endpoint: /shadow}, key_by: ip, limit: 50/hour, mode: shadow}
  - {id: slots, match: {endpoint: /slots}, key_by: ip, concurrency: {limit: 3, ttl: 1h}}
  - {id: counted, match: {endpoint: /slots}, key_by: ip, limit: 100/hour}
  - {id: queue, match: {endpoint: /queue}, key_by: ip, shape: {rate: 1/hour, queue: 9}}
  - {id: once, match: {endpoint: /once}, key_by: ip, limit: 100/hour, idempotency: {ttl: 1h}}
  - {id: always, match: {endpoint: /once}, key_by: ip, limit: 100/hour}
"""
COMPILED = CompiledPolicy(read_policy(POLICY))


def plan(path: str, **options: Any) -> Plan:
    headers = (("idempotency-key", "k"),) if path == "/once" else ()
    request = Request(path=path, peer="192.0.2.1", headers=headers)
    return COMPILED.plan(request, lease="lease", **options)


def reserve(engine: Engine, path: str) -> Effects[Any]:
    return engine.reserve(plan(path, cost=3, is_estimate=True), "name", 10**12)


MIXED = (*parse_limits("2/hour"), LeakyQueue(1, 9))
TRIED = CompiledPolicy(
    Policy(
        (
            Rule("held", Match(), ("ip",), {None: parse_limits("100/hour")}),
            Rule("tried", Match(), ("ip",), {None: MIXED}, mode="shadow"),
        )
    )
)


def reserve_tried(engine: Engine) -> Effects[Any]:
    """Reserve, beside a rule that denies what is held and then peeks at the rest."""
    request = Request(peer="192.0.2.1")
    return engine.reserve(TRIED.plan(request, cost=3, is_estimate=True), "name", 10**12)


def reserve_in_two_ways(engine: Engine) -> Effects[Any]:
    """Reserve under a rule whose hold is charged when it expires, and one whose hold vanishes."""
    rules = (CompiledRule("tokens", charges_expired=True), CompiledRule("spend"))
    planned = [plan_rule(one, parse_limits("100/hour"), "key", 3, "shop") for one in rules]
    both = Plan(0, tuple(planned), open=frozenset(("tokens", "spend")))
    return engine.reserve(both, "name", 10**12)


def limited(
    verb: str, limits: str | Limit = "100/hour; 90/hour fixed_window"
) -> Callable[..., Any]:
    def use_case(engine: Engine) -> Effects[Any]:
        limiter = AsyncRateLimiter(limits, store=engine.store, name="limiter")
        match verb:
            case "hit":
                return limiter._hitting("key", 2)
            case "acquire":
                return limiter._acquiring("key", 2, None)
            case "hit_up_to":
                return limiter._hitting_up_to("key", 2)
            case "hit_many":
                return limiter._hitting_many([("key", 2), "other"])
            case "hit_all":
                return limiter._hitting_all([Hit("key", "100/hour"), Hit("other", "9/hour")])
            case "reserve":
                return limiter._reserving(AsyncReservation, "key", 2, 3_600)
            case "slot":
                return limiter.slot("key")._taking()
            case "slot with a heartbeat":
                return limiter.slot("key", heartbeat=True)._taking()
        raise AssertionError(verb)

    return use_case


USE_CASES: dict[str, Callable[[Engine], Effects[Any]]] = {
    "decide": lambda engine: engine.decide(plan("/plain")),
    "decide beside a shadow rule": lambda engine: engine.decide(plan("/shadow")),
    "decide with slots": lambda engine: engine.decide(plan("/slots")),
    "decide with a queue": lambda engine: engine.decide(plan("/queue")),
    "decide once": lambda engine: engine.decide(plan("/once")),
    "decide each": lambda engine: engine.decide_each([plan("/plain"), plan("/queue")]),
    "peek": lambda engine: engine.peek(plan("/slots")),
    "reserve": lambda engine: reserve(engine, "/plain"),
    "reserve beside a shadow rule": lambda engine: reserve(engine, "/shadow"),
    "reserve beside a denial": reserve_tried,
    "reserve in two ways": reserve_in_two_ways,
    "reserve with slots": lambda engine: reserve(engine, "/slots"),
    "hit": limited("hit"),
    "acquire": limited("acquire"),
    "hit up to": limited("hit_up_to"),
    "hit many": limited("hit_many"),
    "hit all": limited("hit_all"),
    "reserve an amount": limited("reserve"),
    "take a slot": limited("slot", Concurrency(3, 3_600)),
    "take a slot with a heartbeat": limited("slot with a heartbeat", Concurrency(3, 3_600)),
}


@pytest.fixture(autouse=True)
def _python_handles_ctrl_c() -> Iterator[None]:
    """Only under Python's own handler does the driver hold an interrupt back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Case:
    """One use case on a new store, interrupted at one place."""

    def __init__(self, kind: str, use_case: Callable[[Engine], Effects[Any]], when: str) -> None:
        self.kind = kind
        self.recorder = Recorder(has_futures=kind == "future")
        self.engine = Engine(self.recorder)
        self.steps: list[Effect] = []
        # The first place in a queue comes at once, and is not given back.
        self.recorder.inner.run(plan("/queue").operation())
        self._use_case = use_case
        self._when = when

    def run(self, place: int | None) -> None:
        effects = self._use_case(self.engine)
        effects = interrupted_at(effects, place, self.recorder, self._when, self.steps)
        if self.kind == "blocking":
            drive(effects)
        else:
            asyncio.run(adrive(effects))

    def state(self) -> list[tuple[str, str, int]]:
        """The counters that hold something: group, key and what is in use."""
        store = self.recorder.inner
        checks = {
            (check.group, check.key)
            for operation, _ in self.recorder.done
            for take in _parts(operation)
            for check in take.checks
        }
        used = [(group, key, store.used_in(group, key)) for group, key in sorted(checks)]
        return [one for one in used if one[2] > one[0].endswith("queue")]


def _parts(operation: Any) -> tuple[Any, ...]:
    return tuple(getattr(operation, "takes", (operation,)))


@pytest.mark.parametrize("kind", ["blocking", "coroutine", "future"])
@pytest.mark.parametrize("name", USE_CASES)
@pytest.mark.parametrize("when", ["before", "during"])
def test_an_interrupted_caller_is_charged_nothing(kind: str, name: str, when: str) -> None:
    whole = Case(kind, USE_CASES[name], when)
    whole.run(None)
    assert whole.steps
    if name != "peek":
        assert whole.state()
    raised = KeyboardInterrupt if kind == "blocking" else asyncio.CancelledError
    for place in range(len(whole.steps)):
        case = Case(kind, USE_CASES[name], when)
        with pytest.raises(raised):
            case.run(place)
        assert case.state() == [], place
