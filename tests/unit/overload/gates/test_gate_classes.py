"""What matters more at a gate: reserved slots, who waits and who does not; and other options."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from headgate.observability.metrics import METRICS
from headgate.overload import AIMD, AsyncFairGate, Gradient
from headgate.policy.model import ceilings as ceilings_of
from headgate.testing.virtual_loop import run_virtually
from tests.support.gate_callers import Seen, Steered, settle, work

if TYPE_CHECKING:
    from headgate.engine.plan import Priority


@pytest.mark.parametrize(
    ("slots", "reserve", "ceilings"),
    [
        (10, {}, (10, 10, 10)),
        (10, {"critical": 0.2}, (10, 8, 8)),
        (10, {"critical": 0.2, "default": 0.3}, (10, 8, 5)),
        (10, {"default": Fraction(3, 10)}, (10, 10, 7)),
        (10, {"critical": 0.25}, (10, 7, 7)),  # rounded up
        (3, {"critical": 0.01, "default": 0.01}, (3, 2, 1)),
        (3, {"critical": 0.9, "default": 0.1}, (3, 2, 1)),
        (4, {"critical": 1}, (4, 1, 1)),
        (2, {"critical": 0.5, "default": 0.5}, (2, 1, 1)),
        (1, {"critical": 0.5, "default": 0.5}, (1, 1, 1)),
    ],
)
def test_classes_have_ceilings(
    slots: int, reserve: dict[str, float], ceilings: tuple[int, int, int]
) -> None:
    shares = {name: Fraction(share).limit_denominator(100) for name, share in reserve.items()}
    found = ceilings_of(slots, shares)  # type: ignore[arg-type]  # they are classes
    assert tuple(found.values()) == ceilings
    assert tuple(found) == ("critical", "default", "sheddable")


@pytest.mark.parametrize("slots", range(1, 40))
def test_what_matters_more_never_has_the_lower_ceiling(slots: int) -> None:
    shares = [Fraction(part, 8) for part in range(9)]
    for critical, default in ((c, d) for c in shares for d in shares if c + d <= 1):
        most, middle, low = ceilings_of(slots, {"critical": critical, "default": default}).values()
        assert slots == most >= middle >= low >= 1
        if slots >= 3:
            assert middle < most or not critical
            assert low < middle or not default


@pytest.mark.parametrize("priority", ["default", "sheddable"])
@pytest.mark.parametrize("kind", [Gradient, AIMD])
def test_slots_that_move_grow_though_some_are_kept_from_all_who_come(
    kind: type[Gradient | AIMD], priority: Priority
) -> None:
    async def main() -> int | None:
        reserve: dict[Priority, float] = {"critical": 0.4, "default": 0.2}
        gate = AsyncFairGate(slots=kind(initial=10), reserve=reserve)
        for _ in range(100):
            places = [gate.try_enter("a", priority=priority) for _ in range(20)]
            await asyncio.sleep(1)
            for place in places:
                if place is not None:
                    place.release()
        return gate.limit

    assert (run_virtually(main()) or 0) >= 20


def test_slots_are_in_use_for_a_class_when_all_are_that_it_may_use() -> None:
    async def main() -> list[int]:
        steering = Steered(10)
        gate = AsyncFairGate(slots=steering, reserve={"critical": 0.2, "default": 0.3})
        places = [await gate.enter("a", priority="sheddable") for _ in range(5)]
        places += [await gate.enter("a") for _ in range(3)]
        places += [await gate.enter("a", priority="critical") for _ in range(2)]
        waiting = asyncio.ensure_future(gate.enter("a"))
        await settle()
        for place in places:
            place.release()
        (await waiting).release()
        return [one.in_flight for one in steering.seen]

    assert run_virtually(main()) == [2, 4, 6, 8, 10, 7, 8, 10, 9, 10, 10]


def test_the_last_slots_are_for_the_critical() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=10, reserve={"critical": 0.2, "default": 0.3})
        sheddable = [gate.try_enter("a", priority="sheddable") for _ in range(6)]
        assert [place is not None for place in sheddable] == [True] * 5 + [False]
        default = [gate.try_enter("a") for _ in range(4)]
        assert [place is not None for place in default] == [True] * 3 + [False]
        critical = [gate.try_enter("a", priority="critical") for _ in range(3)]
        assert [place is not None for place in critical] == [True] * 2 + [False]

    run_virtually(main())


def test_a_sheddable_one_is_refused_where_others_wait() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        gate.try_enter("a")
        waiting = asyncio.create_task(gate.enter("a"))
        await settle()
        assert (await gate.enter("a", priority="sheddable")).reason == "shed"
        assert gate.depth == 1
        waiting.cancel()

    run_virtually(main())


def test_critical_ones_go_past_default_ones_that_wait() -> None:
    async def main() -> list[str]:
        gate, served = AsyncFairGate(slots=2, reserve={"critical": 0.5}), list[str]()
        default = [work(gate, "default", served) for _ in range(3)]
        critical = [work(gate, "critical", served, priority="critical") for _ in range(3)]
        await asyncio.gather(*default, *critical)
        return served

    # One slot is kept for the critical; when they are through, one at a time goes on.
    assert run_virtually(main()) == ["default", *["critical"] * 3, *["default"] * 2]


def test_slots_that_are_steered_follow_what_the_steering_says() -> None:
    async def main() -> None:
        steering = Steered(2)
        gate, served = AsyncFairGate(slots=steering), list[str]()
        tasks = [asyncio.create_task(work(gate, "a", served)) for _ in range(12)]
        await asyncio.sleep(0.5)
        assert (gate.in_flight, gate.limit) == (2, 2)
        steering.limit = 5
        await asyncio.sleep(1)
        assert (gate.in_flight, gate.limit) == (5, 5)
        steering.limit = 1
        await asyncio.sleep(1)
        assert (gate.in_flight, gate.limit) == (1, 1)
        await asyncio.gather(*tasks)
        assert steering.seen[:2] == [Seen(1, 10**9, succeeded=True), Seen(2, 10**9, succeeded=True)]

    run_virtually(main())


def test_the_reserve_is_a_share_of_the_slots_there_are() -> None:
    async def main() -> None:
        steering = Steered(4)
        gate = AsyncFairGate(slots=steering, reserve={"critical": 0.5})
        place = gate.try_enter("a")
        steering.limit = 10
        assert place
        place.release()
        assert sum(gate.try_enter("a") is not None for _ in range(10)) == 5

    run_virtually(main())


def test_more_slots_let_those_in_who_wait() -> None:
    async def main() -> None:
        gate, served = AsyncFairGate(slots=1), list[str]()
        tasks = [asyncio.create_task(work(gate, "a", served)) for _ in range(5)]
        await settle()
        gate.configure(slots=3, queue=0)  # nobody who waits has to leave
        await settle()
        assert (gate.in_flight, gate.depth) == (3, 2)
        assert (await gate.enter("a")).reason == "queue_full"
        gate.configure(slots=1)
        await asyncio.gather(*tasks)
        assert len(served) == 5

    run_virtually(main())


def test_other_weights_count_for_those_who_wait() -> None:
    async def main() -> str:
        gate, served = AsyncFairGate(slots=1, weights={"a": 4}), list[str]()
        tasks = [asyncio.create_task(work(gate, tenant, served)) for tenant in "a" * 40 + "b" * 40]
        await settle()
        gate.configure(weights={"b": 4})
        await asyncio.gather(*tasks)
        return "".join(served[1:26])

    assert run_virtually(main()).count("b") == 20


def test_a_gate_may_change_from_slots_to_a_rate_and_back() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1, max_wait=5)
        held = gate.try_enter("a")
        waiting = [asyncio.create_task(gate.enter("a", timeout=math.inf)) for _ in range(3)]
        await settle()
        gate.configure(rate="1/s", max_wait=math.inf)
        assert gate.limit is None
        first = await waiting[0]
        await asyncio.sleep(0.5)
        gate.configure(slots=1)
        assert gate.limit == 1
        assert held
        held.release()
        first.release()
        assert (await waiting[1]).release()
        assert await waiting[2]
        assert asyncio.get_running_loop().time() == pytest.approx(0.5)

    run_virtually(main())


def test_options_that_make_no_sense_change_nothing() -> None:
    gate = AsyncFairGate(slots=2)
    with pytest.raises(ValueError, match="slots"):
        gate.configure(slots=0)
    assert gate.limit == 2
    assert repr(gate) == "<AsyncFairGate 'gate' of 2 slots: 0 wait>"


def test_a_gate_tells_how_it_stands() -> None:
    async def main() -> None:
        gate, served = AsyncFairGate(slots=2, max_wait=5, name="told"), list[str]()
        tasks = [asyncio.create_task(work(gate, "a", served)) for _ in range(4)]
        await settle()
        tasks[3].cancel()
        await settle()
        await gate.enter("a", priority="sheddable")
        assert _told("gate_waiting") == 1
        assert _told("gate_in_flight") == 2
        assert _told("gate_slots") == 2
        await asyncio.gather(*tasks, return_exceptions=True)
        assert _told("gate_waiting") == _told("gate_in_flight") == 0
        outcomes = {name: _told("gate_requests", outcome=name) for name in ("passed", "waited")}
        assert outcomes == {"passed": 2, "waited": 1}
        assert _told("gate_requests", outcome="cancelled") == 1
        assert _told("gate_requests", outcome="shed") == 1
        assert _told("gate_requests", outcome="queue_full") == 0

    run_virtually(main())


def _told(measure: str, **labels: str) -> float:
    return METRICS.value(measure, gate="told", **labels)


def test_the_wait_to_expect_is_unknown_until_a_slot_has_been_given_back() -> None:
    async def main() -> None:
        gate = AsyncFairGate(slots=1)
        assert gate.expected_wait == 0.0
        place = gate.try_enter("a")
        assert gate.expected_wait is None
        await asyncio.sleep(3)
        assert place
        place.release()
        assert gate.expected_wait == 0.0
        gate.try_enter("a")
        assert gate.expected_wait == pytest.approx(3.0)

    run_virtually(main())
