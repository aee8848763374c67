"""Gates of several processes that share one rate, over a store on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate import MemoryStore
from headgate.errors import OptionError
from headgate.overload import AsyncFairGate, FairGate, FleetRate
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.gate_callers import settle

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.runtime.effects import Effects, Signal

Log = list[tuple[str, int]]


def _fleet(size: int, rate: str = "10/s", **options: object) -> list[AsyncFairGate]:
    """Gates that have nothing in common but a store."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    store = MemoryStore(clock=loop.time_ns)
    return [
        AsyncFairGate(rate=FleetRate(rate, store=store, key="fleet"), **options)  # type: ignore[arg-type]  # as said
        for _ in range(size)
    ]


async def _come(gate: AsyncFairGate, tenant: str, log: Log, cost: int = 1) -> None:
    with await gate.enter(tenant, cost) as place:
        if place:
            log.append((tenant, round(asyncio.get_running_loop().time() * 1_000)))


def test_all_gates_together_keep_to_the_rate() -> None:
    async def main() -> Log:
        log = Log()
        gates = _fleet(3)
        await asyncio.gather(*(_come(gate, f"{n}", log) for n, gate in enumerate(gates * 4)))
        for gate in gates:
            await gate.aclose()
        return log

    assert [time for _, time in run_virtually(main())] == [100 * n for n in range(12)]


def test_each_gate_gets_as_many_turns_however_many_wait_there() -> None:
    async def main() -> Log:
        log = Log()
        quiet, busy = _fleet(2)
        waiting = [_come(busy, "busy", log) for _ in range(20)]
        waiting += [_come(quiet, "quiet", log) for _ in range(5)]
        await asyncio.gather(*waiting)
        return log

    first = [name for name, _ in run_virtually(main())[:11]]
    assert first.count("quiet") == 5


def test_within_a_gate_the_order_is_fair_when_the_turn_comes() -> None:
    async def main() -> str:
        log = Log()
        (gate,) = _fleet(1, weights={"b": 3})
        await asyncio.gather(*(_come(gate, tenant, log) for tenant in "a" * 12 + "b" * 12))
        return "".join(tenant for tenant, _ in log)

    assert run_virtually(main())[:16].count("b") == 12


def test_one_that_gives_up_takes_no_turn_along() -> None:
    async def main() -> Log:
        log = Log()
        (gate,) = _fleet(1, "1/s")
        tasks = [asyncio.create_task(_come(gate, "a", log)) for _ in range(4)]
        await asyncio.sleep(1.5)
        tasks[2].cancel()
        await asyncio.gather(tasks[0], tasks[1], tasks[3])
        return log

    assert [time for _, time in run_virtually(main())] == [0, 1_000, 2_000]


def test_when_all_have_given_up_the_turn_goes_to_another_gate() -> None:
    async def main() -> Log:
        log = Log()
        first, second = _fleet(2, "1/s")
        await _come(first, "first", log)
        gone = asyncio.create_task(_come(first, "first", log))
        await settle()
        gone.cancel()
        await settle()
        assert first.depth == 0
        await _come(second, "second", log)
        return log

    assert run_virtually(main()) == [("first", 0), ("second", 1_000)]


def test_when_the_time_of_all_is_up_the_turn_goes_to_another_gate() -> None:
    async def main() -> Log:
        log = Log()
        first, second = _fleet(2, "1/s")
        await _come(first, "first", log)
        assert (await first.enter("first", timeout=0.5)).reason == "timeout"
        await settle()
        await _come(second, "second", log)
        return log

    assert run_virtually(main()) == [("first", 0), ("second", 1_000)]


def test_a_turn_that_came_when_all_had_given_up_is_not_saved_up() -> None:
    class Fatal(FleetRate):
        """Whoever waits is cancelled in the instant in which its place comes."""

        victim: asyncio.Task[None] | None = None

        def fetch(self, stop: Signal, clock: Clock) -> Effects[None]:
            yield from super().fetch(stop, clock)
            if self.victim is not None:
                asyncio.get_running_loop().call_soon(self.victim.cancel)

    async def main() -> Log:
        log = Log()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        rate = Fatal("1/s", store=MemoryStore(clock=loop.time_ns), key="fleet")
        gate = AsyncFairGate(rate=rate)
        rate.victim = asyncio.create_task(_come(gate, "a", log))
        await asyncio.sleep(10)
        assert rate.victim.cancelled()
        rate.victim = None
        await asyncio.gather(*(_come(gate, "a", log) for _ in range(2)))
        return log

    assert run_virtually(main()) == [("a", 10_000), ("a", 11_000)]


def test_what_was_fetched_for_one_that_gave_up_counts_for_the_next() -> None:
    async def main() -> Log:
        log = Log()
        (gate,) = _fleet(1, "1/s")
        tasks = [asyncio.create_task(_come(gate, "a", log, cost)) for cost in (1, 5, 7, 1)]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return log

    # At 1 come the five units that were asked for before; the other two are to be had at 6.
    assert [time for _, time in run_virtually(main())] == [0, 6_000, 8_000]


def test_a_cost_takes_so_many_units_of_the_fleet() -> None:
    async def main() -> Log:
        log = Log()
        (gate,) = _fleet(1)
        await asyncio.gather(*(_come(gate, "a", log, cost) for cost in (3, 5, 1)))
        await _come(gate, "a", log)
        return log

    assert [time for _, time in run_virtually(main())] == [0, 300, 800, 900]


def test_a_sheddable_request_goes_if_nobody_waits() -> None:
    async def main() -> None:
        (gate,) = _fleet(1, "1/s")
        assert await gate.enter("a", priority="sheddable")
        waiting = asyncio.create_task(gate.enter("a"))
        await settle()
        assert (await gate.enter("a", priority="sheddable")).reason == "shed"
        assert await waiting

    run_virtually(main())


def test_one_that_would_wait_too_long_is_refused() -> None:
    async def main() -> None:
        (gate,) = _fleet(1, "1/s", max_wait=3)
        waiting = [asyncio.create_task(gate.enter("a")) for _ in range(6)]
        places = await asyncio.gather(*waiting)
        assert [place.reason for place in places].count("too_long") == 2
        assert gate.depth == 0

    run_virtually(main())


def test_a_closed_gate_refuses_those_who_wait() -> None:
    async def main() -> None:
        (gate,) = _fleet(1, "1/s")
        await gate.enter("a")
        waiting = asyncio.create_task(gate.enter("a"))
        await settle()
        await gate.aclose()
        assert (await waiting).reason == "closed"

    run_virtually(main())


def test_a_gate_that_blocks_cannot_have_one() -> None:
    rate = FleetRate("1/s", store="memory://", key="fleet")
    with pytest.raises(OptionError, match="AsyncFairGate"):
        FairGate(rate=rate)
