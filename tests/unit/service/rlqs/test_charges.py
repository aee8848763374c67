"""One set of counters: what gateways use is seen by others, what others use is left to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.policy.envoy_config.attributes import attributes_of
from headgate.service.rlqs import MemoryLedgerStore, RlqsOptions
from headgate.testing import ManualClock
from tests.support.rlqs_gateways import PER_USER, Envoy, Line, Service, breathe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ADA = {"user": "ada"}
REQUEST = Request(attributes=attributes_of("edge", [("user", "ada")]))


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


async def _used(service: Service) -> int:
    verdict = await service.core.rules.peek(REQUEST)
    assert verdict.decision is not None
    return verdict.decision.limit.quota - verdict.decision.remaining


def test_what_gateways_let_through_is_charged_to_the_counter() -> None:
    async def scene() -> None:
        service = Service(PER_USER.replace("100/s", "1000/h fixed_window"))
        line = Line(service)
        await line.report((ADA, 0, 1, 0))
        assert await _used(service) == 1
        await service.pass_time(5)
        await line.report((ADA, 5, 20, 5))
        assert await _used(service) == 21
        await line.vanish()

    run(scene)


def test_what_is_charged_ahead_is_what_was_used_in_the_end() -> None:
    async def scene() -> None:
        service = Service(PER_USER.replace("100/s", "100000/h fixed_window"))
        line = Line(service)
        await line.report((ADA, 5, 50, 0))
        await service.pass_time(5)
        assert await _used(service) == 100  # ten a second, as it was
        await line.report((ADA, 5, 7, 0))
        assert await _used(service) == 57
        await line.vanish()

    run(scene)


def test_a_rule_that_is_not_exact_is_charged_too() -> None:
    async def scene() -> None:
        service = Service(
            PER_USER.replace("100/s", "1000/h fixed_window\n    accuracy: {batch: 10}")
        )
        line = Line(service)
        await line.report((ADA, 5, 50, 0))
        await service.pass_time(3)
        assert await _used(service) >= 50
        assert line.rate(**ADA)
        await line.vanish()

    run(scene)


async def _share(limit: str, others: int, seconds: int) -> tuple[float, float]:
    """Two busy gateways, and *others* requests a second that are checked one by one: what the
    gateways let through a second in the last half of the time, and what was let through of the
    others."""
    service = Service(PER_USER.replace("100/s", limit))
    envoys = [Envoy(service, **ADA), Envoy(service, **ADA)]
    passed = 0
    for second in range(seconds):
        if second == seconds // 2:
            passed = 0
            for envoy in envoys:
                envoy.allowed = 0
        for _ in range(10):
            service.clock.advance(0.1)
            for envoy in envoys:
                await envoy.ask(10)
            for _ in range(others // 10):
                passed += bool(await service.core.rules.check(REQUEST))
        await service.calls.tick()
        await breathe()
    for envoy in envoys:
        await envoy.line.vanish()
    return sum(one.allowed for one in envoys) / (seconds / 2), passed / (seconds / 2)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("100/s burst 1000", 80),
        ("100/s burst 100", 80),
        ("6000/m fixed_window", 120),  # the second of two windows
        ("6000/m gcra", 120),
    ],
)
def test_gateways_leave_half_of_a_limit_to_others_who_use_half(limit: str, seconds: int) -> None:
    async def scene() -> None:
        gateways, others = await _share(limit, 50, seconds)
        assert 35 <= gateways <= 65
        assert 35 <= others <= 50
        assert gateways + others <= 110

    run(scene)


def test_gateways_have_the_limit_to_themselves_when_nobody_else_uses_it() -> None:
    async def scene() -> None:
        gateways, _ = await _share("100/s burst 200", 0, 60)
        assert 85 <= gateways <= 105

    run(scene)


@pytest.mark.parametrize("limit", ["100/s", "100/s burst 1000"])
def test_a_burst_of_their_own_does_not_cost_gateways_their_rate(limit: str) -> None:
    """The counter is short afterwards, but nobody else has used it."""

    async def scene() -> None:
        service = Service(PER_USER.replace("100/s", limit))
        envoys = [Envoy(service, **ADA), Envoy(service, **ADA)]
        each_second = []
        for _ in range(40):
            before = sum(one.allowed for one in envoys)
            for _ in range(10):
                service.clock.advance(0.1)
                for envoy in envoys:
                    await envoy.ask(20)
            await service.calls.tick()
            await breathe()
            each_second.append(sum(one.allowed for one in envoys) - before)
        for envoy in envoys:
            await envoy.line.vanish()
        assert min(each_second[4:]) >= 80

    run(scene)


def test_gateways_of_another_replica_are_not_taken_for_other_users() -> None:
    """They use the counter too, and each replica charges only its own."""

    async def scene() -> None:
        clock, options = ManualClock(1_000_000), RlqsOptions()
        board = MemoryLedgerStore(clock, options)
        one = Service(board=board, clock=clock)
        store = one.core.rules.engine.store
        two = Service(board=board, clock=clock, store=store, is_fresh=True)
        envoys = [Envoy(one, **ADA), Envoy(two, **ADA)]
        each_second = []
        for _ in range(30):
            before = sum(envoy.allowed for envoy in envoys)
            for _ in range(10):
                clock.advance(0.1)
                for envoy in envoys:
                    await envoy.ask(20)
            for service in (one, two):
                await service.calls.tick()
            await breathe()
            each_second.append(sum(envoy.allowed for envoy in envoys) - before)
        for envoy in envoys:
            await envoy.line.vanish()
        assert min(each_second[3:]) >= 90

    run(scene)


def test_others_cannot_take_all_from_gateways() -> None:
    async def scene() -> None:
        gateways, others = await _share("100/s burst 500", 300, 60)
        assert gateways >= 5
        assert gateways + others <= 120

    run(scene)


def test_a_wider_rule_holds_for_all_buckets_together() -> None:
    text = """
version: 1
rules:
  - {id: all, match: {attributes: {user: true}}, key_by: global, limit: 60/s burst 300}
  - {id: each, match: {attributes: {user: true}}, key_by: "attribute:user", limit: 20/s}
"""

    async def scene() -> None:
        service = Service(text)
        envoys = [Envoy(service, user=str(n)) for n in range(8)]
        for second in range(80):
            if second == 40:
                for envoy in envoys:
                    envoy.allowed = 0
            for _ in range(10):
                service.clock.advance(0.1)
                for envoy in envoys:
                    await envoy.ask(4)
            await service.calls.tick()
            await breathe()
        rate = sum(one.allowed for one in envoys) / 40
        assert 40 <= rate <= 75  # of 160 that the buckets could have had by themselves
        for envoy in envoys:
            await envoy.line.vanish()

    run(scene)
