"""A fair gate that gives places at a rate, on virtual time."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from random import Random

import pytest

from headgate.errors import OptionError
from headgate.limits import GCRA, FixedWindow, LeakyBucket
from headgate.overload import AsyncFairGate
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.gate_callers import settle

Log = list[tuple[str, int]]


async def _come(gate: AsyncFairGate, tenant: str, log: Log, cost: int = 1) -> None:
    """Note when the place came, in milliseconds."""
    with await gate.enter(tenant, cost) as place:
        if place:
            log.append((tenant, round(asyncio.get_running_loop().time() * 1_000)))


@pytest.mark.parametrize("rate", ["10/s", 10, 10.0, Fraction(10), GCRA(10, 50), LeakyBucket(9, 10)])
def test_turns_are_evenly_spaced_without_a_burst(rate: str) -> None:
    async def main() -> Log:
        gate, log = AsyncFairGate(rate=rate), Log()
        await asyncio.gather(*(_come(gate, "a", log) for _ in range(5)))
        await asyncio.sleep(10)  # a rest saves nothing up
        await asyncio.gather(*(_come(gate, "a", log) for _ in range(3)))
        return log

    times = [time for _, time in run_virtually(main())]
    assert times == [0, 100, 200, 300, 400, 10_400, 10_500, 10_600]


def test_spacing_does_not_drift() -> None:
    async def main() -> float:
        gate, log = AsyncFairGate(rate="3/s", queue=1_000), Log()
        await asyncio.gather(*(_come(gate, "a", log) for _ in range(601)))
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == pytest.approx(200.0, abs=1e-6)


def test_a_burst_may_go_at_once_after_a_rest() -> None:
    async def main() -> Log:
        gate, log = AsyncFairGate(rate="10/s", burst=3), Log()
        await asyncio.gather(*(_come(gate, "a", log) for _ in range(5)))
        await asyncio.sleep(10)
        await asyncio.gather(*(_come(gate, "a", log) for _ in range(4)))
        return log

    times = [time for _, time in run_virtually(main())]
    assert times == [0, 0, 0, 100, 200, 10_200, 10_200, 10_200, 10_300]


def test_a_cost_takes_the_time_of_so_many() -> None:
    async def main() -> Log:
        gate, log = AsyncFairGate(rate="10/s"), Log()
        await asyncio.gather(*(_come(gate, "a", log, cost) for cost in (5, 2, 1)))
        return log

    assert [time for _, time in run_virtually(main())] == [0, 500, 700]


def test_tenants_share_a_rate_by_weight() -> None:
    async def main() -> Log:
        gate, log = AsyncFairGate(rate="10/s", weights={"b": 3}), Log()
        await asyncio.gather(*(_come(gate, tenant, log) for tenant in "a" * 30 + "b" * 30))
        return log

    served = "".join(tenant for tenant, _ in run_virtually(main())[1:21])
    assert (served.count("a"), served.count("b")) == (5, 15)


def test_who_could_not_go_in_time_is_told_so_exactly_and_at_once() -> None:
    async def main() -> None:
        gate = AsyncFairGate(rate="10/s", max_wait=0.3)
        places = await asyncio.gather(*(gate.enter("a") for _ in range(6)))
        assert [bool(place) for place in places] == [True] * 4 + [False] * 2
        assert [place.waited for place in places] == pytest.approx([0, 0.1, 0.2, 0.3, 0, 0])
        assert {place.reason for place in places[4:]} == {"too_long"}
        assert places[5].retry_after == pytest.approx(0.4)

    run_virtually(main())


def test_the_wait_is_the_one_of_the_fair_order() -> None:
    async def main() -> None:
        gate = AsyncFairGate(rate="10/s")
        waiting = [asyncio.create_task(gate.enter("a")) for _ in range(21)]
        await settle()
        greedy = await gate.enter("a", timeout=2)
        assert greedy.retry_after == pytest.approx(2.1)
        assert gate.expected_wait == pytest.approx(0.2)
        modest = await gate.enter("b", timeout=0.3)
        assert modest.waited == pytest.approx(0.2)
        for task in waiting:
            task.cancel()

    run_virtually(main())


def test_those_behind_one_that_gives_up_move_up() -> None:
    async def main() -> Log:
        gate, log = AsyncFairGate(rate="1/s"), Log()
        tasks = [asyncio.create_task(_come(gate, "a", log)) for _ in range(5)]
        await asyncio.sleep(1.5)
        tasks[2].cancel()
        await asyncio.gather(*tasks[:2], *tasks[3:])
        return log

    assert [time for _, time in run_virtually(main())] == [0, 1_000, 2_000, 3_000]


def test_a_late_timer_does_not_slow_the_rate_but_a_stall_is_not_made_up_for() -> None:
    async def main() -> Log:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        late_ns = 0
        gate, log = AsyncFairGate(rate="100/s", clock=lambda: loop.time_ns() + late_ns), Log()
        tasks = [asyncio.create_task(_come(gate, "a", log)) for _ in range(8)]
        await asyncio.sleep(0.015)
        late_ns = 4_000_000  # when the timer for 20 ms goes off, it is 24
        await asyncio.sleep(0.006)
        late_ns = 0
        await asyncio.sleep(0.010)
        late_ns = 1_000_000_000
        await asyncio.gather(*tasks)
        return log

    times = [time for _, time in run_virtually(main())]
    assert times == [0, 10, 20, 30, 40, 40, 50, 60]


def test_nobody_overtakes_those_who_wait_when_the_timer_is_late() -> None:
    async def main() -> None:
        clock_ns = 0
        gate = AsyncFairGate(rate="1/s", clock=lambda: clock_ns)
        assert gate.try_enter("a")
        waiting = asyncio.create_task(gate.enter("a"))
        await settle()
        clock_ns = 1_500_000_000  # and the timer has not gone off yet
        assert gate.try_enter("b") is None
        assert await waiting

    run_virtually(main())


def test_a_rate_may_change_while_others_wait() -> None:
    async def main() -> Log:
        gate, log = AsyncFairGate(rate="1/s"), Log()
        tasks = [asyncio.create_task(_come(gate, "a", log)) for _ in range(6)]
        await asyncio.sleep(1.5)
        gate.configure(rate="10/s")
        await asyncio.gather(*tasks)
        return log

    assert [time for _, time in run_virtually(main())] == [0, 1_000, 2_000, 2_100, 2_200, 2_300]


def test_a_gate_that_is_told_its_rate_again_gives_nothing_away() -> None:
    async def main() -> None:
        gate = AsyncFairGate(rate="1/s")
        assert gate.try_enter("a")
        gate.configure(rate="1/s", queue=5)
        assert gate.try_enter("a") is None

    run_virtually(main())


def test_a_sheddable_request_takes_what_is_free_and_never_waits() -> None:
    async def main() -> None:
        gate = AsyncFairGate(rate="1/s")
        assert await gate.enter("a", priority="sheddable")
        shed = await gate.enter("a", priority="sheddable")
        assert shed.reason == "shed"
        assert shed.retry_after == pytest.approx(1.0)

    run_virtually(main())


@pytest.mark.parametrize("rate", ["5/minute fixed_window", "10/s burst 50", 0, -1])
def test_a_rate_is_a_pace_and_nothing_else_that_would_be_left_out_of_account(rate: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        AsyncFairGate(rate=rate)


def test_a_window_has_no_pace() -> None:
    with pytest.raises(OptionError, match="without a window"):
        AsyncFairGate(rate=FixedWindow(10, 1))  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"slots": 1, "rate": "1/s"},
        {"rate": "1/s", "reserve": {"critical": 0.2}},
        {"slots": 1, "burst": 2},
        {"rate": "1/s", "burst": 0},
        {"slots": 0},
        {"slots": True},
        {"slots": "3"},
        {"slots": 1, "queue": -1},
        {"slots": 1, "waiting": 1.5},
        {"slots": 1, "max_wait": -1},
        {"slots": 1, "weights": {"a": 0}},
        {"slots": 1, "reserve": {"sheddable": 0.2}},
        {"slots": 1, "reserve": {"critical": 1.2}},
        {"slots": 1, "reserve": {"critical": 0.7, "default": 0.7}},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        AsyncFairGate(**options)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("seed", range(12))
def test_who_is_accepted_is_served_in_time_if_nobody_comes_after(seed: int) -> None:
    random = Random(seed)
    tenants = [f"t{number}" for number in range(random.choice((2, 5, 20)))]
    weights = {tenant: random.choice((1, 2, 7)) for tenant in tenants}
    costs = random.choice(((1,), (1, 5), (3,)))

    async def main() -> tuple[str | None, float, float]:
        gate = AsyncFairGate(rate=10, queue=50, weights=weights)
        others = []
        for _ in range(random.randint(1, 60)):
            coming = gate.enter(random.choice(tenants), random.choice(costs))
            others.append(asyncio.ensure_future(coming))
            if random.random() < 0.3:
                await asyncio.sleep(random.choice((0, 0.05, 0.1, 0.33)))
        await asyncio.sleep(0)
        timeout = random.choice((0.5, 1, 2, 5, 10, 20))
        place = await gate.enter(random.choice(tenants), random.choice(costs), timeout=timeout)
        for other in others:
            other.cancel()
        return place.reason, place.waited, timeout

    reason, waited, timeout = run_virtually(main())
    assert reason in (None, "too_long"), seed
    assert waited <= timeout
