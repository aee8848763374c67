"""A fair gate in an event loop, on virtual time: slots, waiting, leaving."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from headgate.errors import UsageError
from headgate.overload import AsyncFairGate, Place
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.gate_callers import Steered, settle, work


def test_try_enter_takes_what_there_is_and_never_waits() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        place = gate.try_enter("a")
        assert place
        assert gate.try_enter("a") is None
        assert gate.depth == 0
        place.release()
        assert gate.try_enter("a")

    run_virtually(main())


def test_those_who_wait_go_by_weight() -> None:
    async def main() -> str:
        gate, served = AsyncFairGate(slots=1, weights={"b": 2}), list[str]()
        await asyncio.gather(
            *(work(gate, tenant, served) for tenant in "a" * 40 + "b" * 40 for _ in range(1))
        )
        return "".join(served[:31])

    served = run_virtually(main())
    assert served.count("b") == 2 * (served.count("a") - 1)


def test_slots_that_one_does_not_use_are_for_the_others() -> None:
    async def main() -> float:
        gate, served = AsyncFairGate(slots=4, weights={"idle": 1000}), list[str]()
        await asyncio.gather(*(work(gate, "a", served) for _ in range(40)))
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == pytest.approx(10.0)


def test_so_many_of_a_tenant_and_in_all_may_wait() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1, queue=2, waiting=3)
        gate.try_enter("a")
        waiting = [asyncio.create_task(gate.enter(tenant)) for tenant in "aab"]
        await settle()
        assert (gate.depth, gate.depth_of("a"), gate.depth_of("b")) == (3, 2, 1)
        assert (await gate.enter("a")).reason == "queue_full"
        assert (await gate.enter("b")).reason == "queue_full"
        waiting[2].cancel()
        await settle()
        assert (await gate.enter("a")).reason == "queue_full"
        assert gate.depth == 2

    run_virtually(main())


def test_those_who_have_many_waiting_do_not_shut_the_others_out() -> None:
    async def main() -> list[str | None]:
        gate = AsyncFairGate(slots=1, waiting=6)
        place = await gate.enter("a")
        waiting = [asyncio.create_task(gate.enter(tenant)) for tenant in "aaaabb"]
        await settle()
        waiting += [asyncio.create_task(gate.enter(tenant)) for tenant in "cdef"]
        await settle()
        assert [gate.depth_of(tenant) for tenant in "abcdef"] == [1, 1, 1, 1, 1, 1]
        assert (await gate.enter("g")).reason == "queue_full"
        place.release()
        for task in waiting:
            (await task).release()
        return [task.result().reason for task in waiting]

    full = "queue_full"
    assert run_virtually(main()) == [None, full, full, full, None, full, None, None, None, None]


def test_who_matters_more_takes_the_place_of_one_who_matters_less() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1, waiting=2)
        await gate.enter("a")
        waiting = [asyncio.create_task(gate.enter(tenant)) for tenant in "bc"]
        await settle()
        urgent = [asyncio.create_task(gate.enter("d", priority="critical")) for _ in range(3)]
        await settle()
        assert [(await task).reason for task in (*waiting, urgent[2])] == ["queue_full"] * 3
        assert gate.depth_of("d") == gate.depth == 2

    run_virtually(main())


def test_one_that_waits_too_long_is_refused_when_its_time_is_up() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1, max_wait=5)
        gate.try_enter("a")
        place = await gate.enter("a")
        assert place.reason == "timeout"
        assert not place
        assert place.waited == pytest.approx(5.0)
        assert place.retry_after is None  # no slot has been given back yet: nothing to go by
        shorter = await gate.enter("a", timeout=2)
        assert shorter.waited == pytest.approx(2.0)
        longer = await gate.enter("a", timeout=20)
        assert longer.waited == pytest.approx(5.0)
        assert gate.depth == 0
        assert not shorter.release()

    run_virtually(main())


def test_one_that_could_not_be_served_in_time_is_refused_at_once() -> None:
    async def main() -> None:
        gate, served = AsyncFairGate(slots=2, max_wait=10), list[str]()
        await work(gate, "a", served, seconds=4)
        for _ in range(2):
            asyncio.create_task(work(gate, "a", served, seconds=4))  # noqa: RUF006
        await settle()
        waiting = [asyncio.create_task(gate.enter("b")) for _ in range(4)]
        await settle()
        assert gate.expected_wait == pytest.approx(2.0 * 2)  # somebody new is second
        assert not (place := await gate.enter("b", timeout=9))
        assert place.reason == "too_long"
        assert place.waited == 0
        assert place.retry_after == pytest.approx(10.0)
        for task in waiting:
            task.cancel()

    run_virtually(main())


def test_a_patience_of_nothing_never_waits() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        assert await gate.enter("a", timeout=0)
        assert (await gate.enter("a", timeout=0.0)).reason == "too_long"
        gate.configure(max_wait=timedelta(0))
        assert (await gate.enter("a")).reason == "too_long"

    run_virtually(main())


def test_a_wait_that_is_over_leaves_no_timer_behind() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1, max_wait=1_000)
        held = gate.try_enter("a")
        waiting = asyncio.create_task(gate.enter("a"))
        await settle()
        assert held
        held.release()
        await waiting
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]  # asyncio's own
        assert all(timer.cancelled() for timer in timers)

    run_virtually(main())


def test_who_is_cancelled_frees_its_place_at_once() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        held = gate.try_enter("a")
        first, second = (asyncio.create_task(gate.enter("a")) for _ in range(2))
        await settle()
        first.cancel()
        await settle()
        assert gate.depth == 1
        assert held
        held.release()
        assert await second
        assert first.cancelled()

    run_virtually(main())


@pytest.mark.parametrize("options", [{"slots": 2}, {"rate": "2/s"}])
@pytest.mark.parametrize("step", range(12))
def test_whenever_one_is_cancelled_no_turn_is_lost(options: dict[str, str], step: int) -> None:
    """One of several that wait is cancelled *step* steps of the loop after a place came up."""

    async def main() -> None:
        gate, served = AsyncFairGate(**options), list[str]()  # type: ignore[arg-type]  # either
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(work(gate, "a", served)) for _ in range(4)]
        victim = asyncio.create_task(work(gate, "a", served))
        others = [asyncio.create_task(work(gate, "a", served)) for _ in range(4)]
        await settle()
        # The loop runs what is due at 1.0 before this, in the order of the timers.
        await asyncio.sleep(1.0 - loop.time())
        for _ in range(step):
            await asyncio.sleep(0)
        victim.cancel()
        await asyncio.gather(*tasks, *others)
        assert len(served) >= 8
        assert (gate.in_flight, gate.depth) == (0, 0)

    run_virtually(main())


def test_a_coroutine_that_is_thrown_away_gives_its_place_up() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        gate.try_enter("a")
        waiting = gate.enter("a")
        waiting.send(None)
        assert gate.depth == 1
        waiting.close()
        assert gate.depth == 0

    run_virtually(main())


def test_a_turn_given_in_the_instant_of_a_cancellation_is_passed_on() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        held = gate.try_enter("a")
        first, second = (asyncio.create_task(gate.enter("a")) for _ in range(2))
        await settle()
        assert held
        held.release()  # first has the place now, and has not heard of it
        assert (gate.depth, gate.in_flight) == (1, 1)
        first.cancel()
        place = await second
        assert place
        assert first.cancelled()
        assert gate.in_flight == 1

    run_virtually(main())


def test_a_block_has_its_turn_and_gives_it_back() -> None:
    async def late(gate: AsyncFairGate) -> None:
        async with gate.place("a"):
            await asyncio.sleep(2)
            raise TimeoutError

    async def main() -> None:
        steering = Steered(3)
        gate = AsyncFairGate(slots=steering)
        async with gate.place("a", 2, weight=2, priority="critical", timeout=1) as place:
            assert place
            assert gate.in_flight == 1
        with pytest.raises(TimeoutError):
            await late(gate)
        with pytest.raises(ZeroDivisionError):
            async with gate.place("a"):
                raise ZeroDivisionError
        async with gate.place("a") as place:
            place.release(succeeded=False)
        assert gate.in_flight == 0
        assert [seen.succeeded for seen in steering.seen] == [True, False, True, False]
        assert steering.seen[1].latency_ns == 2_000_000_000

    run_virtually(main())


def test_a_refused_block_is_run_and_has_nothing_to_give_back() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        gate.try_enter("a")
        async with gate.place("a", timeout=0) as place:
            assert not place
        assert gate.in_flight == 1

    run_virtually(main())


def test_a_cost_of_nothing_passes_and_takes_no_slot() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        gate.try_enter("a")
        place = await gate.enter("a", 0)
        assert place
        assert not place.is_in
        assert not place.release()
        assert gate.in_flight == 1

    run_virtually(main())


def test_a_gate_belongs_to_one_loop_until_that_is_closed() -> None:
    gate = AsyncFairGate(slots=1)
    with asyncio.Runner(loop_factory=VirtualLoop) as first:

        async def hold() -> Place:
            return await gate.enter("a")

        held = first.run(hold())
        with (
            asyncio.Runner(loop_factory=VirtualLoop) as second,
            pytest.raises(UsageError, match="another event loop"),
        ):
            second.run(hold())
    assert run_virtually(gate.enter("a", timeout=0))  # nobody of before is in any more
    held.release()
    assert gate.in_flight == 1
