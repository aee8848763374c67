"""The fair queues of an app follow its policy."""

from __future__ import annotations

import asyncio
import gc
import os

import pytest

from headgate.engine.plan import Queueing
from headgate.errors import UsageError
from headgate.integrations.fair_queues import FairQueues
from headgate.observability.metrics import METRICS
from headgate.overload import AsyncFairGate, FairGate
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import read_policy
from headgate.policy.model import compiled_rule
from headgate.runtime.drivers import adrive, drive
from headgate.testing.virtual_loop import VirtualLoop, run_virtually

FAIR = "{id: %s, key_by: tenant, fair: {%s, queue: 9, max_wait: 60s}}"


def following(*rules: str) -> CompiledPolicy:
    return CompiledPolicy(read_policy(f"version: 1\nrules: [{', '.join(rules)}]"))


def queueing(engine: CompiledPolicy, number: int = 0) -> tuple[Queueing, ...]:
    return (Queueing(compiled_rule(engine.policy.rules[number]), "t", 1, 1, "default"),)


def of_loop() -> FairQueues:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return FairQueues(loop.time_ns)


OTHER = "{id: other, key_by: ip, limit: 9/s}"


def test_gates_of_rules_that_are_gone_are_forgotten_with_what_they_told() -> None:
    turns = FairQueues(None)
    for number in range(5):
        engine = following(FAIR % (f"gone-{number}", "slots: 3"))
        turns.adopt(engine)
        [turn], _ = drive(turns.entering(FairGate, 0, queueing(engine)))
        turn.release()
    assert [gate.name for gate in turns.gates()] == ["gone-4"]
    gc.collect()
    assert METRICS.value("gate_slots", gate="gone-0") == 0
    assert METRICS.value("gate_slots", gate="gone-4") == 3


def test_those_who_wait_under_a_rule_that_is_taken_out_have_their_turns() -> None:
    async def main() -> list[float]:
        turns, engine = of_loop(), following(FAIR % ("x", "slots: 1"))
        turns.adopt(engine)
        [first], _ = await adrive(turns.entering(AsyncFairGate, 0, queueing(engine)))
        waiting = asyncio.ensure_future(adrive(turns.entering(AsyncFairGate, 0, queueing(engine))))
        await asyncio.sleep(1)
        turns.adopt(following(OTHER))
        assert turns.waiting == 1
        turns.adopt(engine)  # and back: those who are in still count
        assert turns.try_enter(queueing(engine)) is None
        turns.adopt(following(OTHER))
        first.release()
        [second], refused = await waiting
        assert refused is None
        second.release()
        turns.adopt(following(OTHER))
        assert list(turns.gates()) == []
        return [second.waited]

    assert run_virtually(main()) == [1]


@pytest.mark.parametrize("budget", ["rate: 1/s", "slots: 5", "slots: {adaptive: aimd, min: 4}"])
def test_those_who_wait_go_on_as_the_rule_says_now(budget: str) -> None:
    async def main() -> None:
        turns, engine = of_loop(), following(FAIR % ("x", "slots: 1"))
        turns.adopt(engine)
        await adrive(turns.entering(AsyncFairGate, 0, queueing(engine)))
        entering = [adrive(turns.entering(AsyncFairGate, 0, queueing(engine))) for _ in range(3)]
        waiting = [asyncio.ensure_future(one) for one in entering]
        await asyncio.sleep(1)
        changed = following(FAIR % ("x", budget))
        turns.adopt(changed)
        waiting.append(
            asyncio.ensure_future(adrive(turns.entering(AsyncFairGate, 0, queueing(engine))))
        )
        assert all(refused is None for _, refused in await asyncio.gather(*waiting))
        assert asyncio.get_running_loop().time() == (4 if "rate" in budget else 1)

    run_virtually(main())


def test_a_gate_that_is_in_use_in_another_loop_costs_no_turn_at_those_before_it() -> None:
    turns = FairQueues(None)
    engine = following(FAIR % ("x", "slots: 1"), FAIR % ("y", "slots: 1"))
    turns.adopt(engine)
    other = asyncio.new_event_loop()
    [held], _ = other.run_until_complete(
        adrive(turns.entering(AsyncFairGate, 0, queueing(engine, 1)))
    )

    async def main() -> None:
        both = queueing(engine) + queueing(engine, 1)
        with pytest.raises(UsageError, match="'y' is in use in another event loop"):
            turns.try_enter(both)

    asyncio.run(main())
    assert {gate.name: gate.in_flight for gate in turns.gates()} == {"x": 0, "y": 1}
    held.release()
    other.close()


def test_closing_refuses_those_who_wait_and_who_comes_after_finds_new_gates() -> None:
    async def main() -> None:
        turns, engine = of_loop(), following(FAIR % ("x", "slots: 1"))
        turns.adopt(engine)
        [first], _ = await adrive(turns.entering(AsyncFairGate, 0, queueing(engine)))
        waiting = asyncio.ensure_future(adrive(turns.entering(AsyncFairGate, 0, queueing(engine))))
        await asyncio.sleep(1)
        await turns.aclose()
        [refused], where = await waiting
        assert refused.reason == "closed"
        assert where is not None
        assert turns.try_enter(queueing(engine))
        first.release()  # which is of no account there
        assert turns.try_enter(queueing(engine)) is None

    run_virtually(main())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_gates_of_its_own() -> None:
    turns, engine = FairQueues(None), following(FAIR % ("x", "slots: 1"))
    turns.adopt(engine)
    with turns._lock:  # as another thread may have it
        child = os.fork()
        if not child:
            [turn], refused = drive(turns.entering(FairGate, 0, queueing(engine)))
            os._exit(0 if turn and refused is None else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
