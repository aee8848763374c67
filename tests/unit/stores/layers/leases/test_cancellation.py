"""A take that is interrupted, at whichever `yield`: no unit stays taken, no caller hangs.

The generator receives `Interrupted` at one of its effects, before the operation ran (no reply) or
after it (with the reply). If the take was carried out, `Interrupted` leaves the generator with the
outcomes, and the caller undoes it by a refund; else everything is put back.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headgate.runtime.drivers import drive
from headgate.runtime.effects import Interrupted, Run
from headgate.stores.operations import GrantLease, Operation, Refund, Take, TakeEach
from tests.support.lease_remote import Driven, check

if TYPE_CHECKING:
    from collections.abc import Callable

ALONE = Take((check(),))
STACKED = Take((check(), check("exact")))
TWO_LEASED = Take((check(), check("too")))
EACH = TakeEach((Take((check(),)), Take((check("exact"),)), STACKED, TWO_LEASED))
OPERATIONS: list[Operation[Any]] = [ALONE, STACKED, TWO_LEASED, EACH]


def cold() -> Driven:
    """Hot keys without a lease: the next take requests one."""
    driven = Driven(None, keeps=True)
    for group in ("leased", "too"):
        for _ in range(50):
            driven.store.hot_keys()
            driven.run(Take((check(group),), consume=False))
        driven.store._table.demand.heavy.add(group, "k", 50, driven.remote.clock())
    return driven


def warm() -> Driven:
    """Leases with units."""
    driven = Driven(None, keeps=True)
    driven.warm()
    driven.warm("too")
    return driven


def used_up() -> Driven:
    """Leases without units."""
    driven = warm()
    driven.use_up()
    return driven


STATES: list[Callable[[], Driven]] = [cold, warm, used_up]


def spent(driven: Driven) -> dict[str, int]:
    """The units that are charged in the store and not held in a lease."""
    return {name: driven.used(name) - driven.held(name) for name in ("leased", "too", "exact")}


def charged_by(operation: Operation[Any], reply: Any) -> list[Take]:
    """The takes of *operation* that *reply* says were carried out."""
    takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
    replies = reply if isinstance(operation, TakeEach) else (reply,)
    return [
        take
        for take, outcomes in zip(takes, replies, strict=True)
        if isinstance(take, Take) and all(one.allowed for one in outcomes)
    ]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=["alone", "stacked", "two leased", "each"])
@pytest.mark.parametrize("has_reply", [False, True])
def test_a_take_that_is_interrupted_at_any_yield_leaves_nothing_taken(
    state: Callable[[], Driven], operation: Operation[Any], *, has_reply: bool
) -> None:
    count = 0
    while True:
        driven = state()
        before = spent(driven)
        effects = driven.store.effects(operation)
        try:
            effect = next(effects)
            for _ in range(count):
                effect = effects.send(effect.perform())
        except StopIteration:
            break
        count += 1
        reply = effect.perform() if has_reply and isinstance(effect, Run) else None
        with pytest.raises(Interrupted) as caught:
            effects.throw(Interrupted(reply))
        is_lease_lost = isinstance(effect, Run) and isinstance(effect.operation, GrantLease)
        if caught.value.reply is not None:
            for take in charged_by(operation, caught.value.reply):
                driven.remote.store.run(Refund(take.checks))
        if not (is_lease_lost and not has_reply):
            assert spent(driven) == before, f"interrupted at {effect!r}, {count}"
        assert driven.store._in_flight == {}
        assert driven.take(check(), check("too"), check("exact")) == [True] * 3
        driven.close()
    assert count > 0 or state is warm


@pytest.mark.parametrize("has_reply", [False, True])
def test_callers_that_wait_go_on_when_the_one_who_requested_is_interrupted(
    *, has_reply: bool
) -> None:
    driven = used_up()
    first = driven.store.effects(ALONE)
    request = next(first)
    assert isinstance(request, Run)
    done: list[Any] = []

    def work() -> None:
        try:
            done.append(drive(driven.store.effects(ALONE))[0].allowed)
        except Exception as error:  # noqa: BLE001 (the assertion below shows it)
            done.append(error)

    waiters = [threading.Thread(target=work) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    with pytest.raises(Interrupted):
        first.throw(Interrupted(request.perform() if has_reply else None))
    for waiter in waiters:
        waiter.join(10)
    assert len(done) == 3
    if has_reply:
        assert done == [True] * 3
    assert driven.take(check()) == [True]
    driven.close()


def test_a_waiter_that_is_interrupted_leaves_the_request_to_the_others() -> None:
    driven = used_up()
    first = driven.store.effects(ALONE)
    request = next(first)
    waiter = driven.store.effects(ALONE)
    next(waiter)
    with pytest.raises(Interrupted):
        waiter.throw(Interrupted())
    with suppress(StopIteration):
        effect = first.send(request.perform())
        while True:
            effect = first.send(effect.perform())
    assert driven.store.units_held() > 0


@pytest.mark.parametrize("operation", OPERATIONS, ids=["alone", "stacked", "two leased", "each"])
@pytest.mark.parametrize("steps", range(6))
def test_tasks_that_are_cancelled_leave_the_leases_in_order(
    operation: Operation[Any], steps: int
) -> None:
    with asyncio.Runner() as runner:
        driven = Driven(runner)
        driven.warm()
        driven.warm("too")
        driven.use_up()

        async def main() -> None:
            driven.remote.held = asyncio.Event()
            task = asyncio.ensure_future(driven.store.arun(operation))
            others = [asyncio.ensure_future(driven.store.arun(ALONE)) for _ in range(3)]
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            driven.remote.held.set()
            results = await asyncio.gather(task, *others, return_exceptions=True)
            assert isinstance(results[0], asyncio.CancelledError)
            assert [one[0].allowed for one in results[1:]] == [True] * 3  # type: ignore[index]

        runner.run(main())
        assert driven.store._in_flight == {}
        assert driven.take(check(), check("too"), check("exact")) == [True] * 3
        driven.close()
        takes = driven.used() + driven.used("too") + driven.used("exact")
        assert takes <= 150
