"""Steps in the background: by a thread or by a task, begun when needed, ended by close."""

import asyncio
import gc
import os
import threading
import weakref
from dataclasses import replace
from fractions import Fraction

import pytest

from headgate.errors import OptionError, StoreError
from headgate.overload import AsyncPressureControl, PressureControl
from headgate.policy.model import Pressure
from headgate.stores import MemoryStore
from headgate.stores.operations import PublishValue
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from headgate.units import MILLISECOND, SECOND

QUICK = Pressure(interval_ns=MILLISECOND)
SOON = 60.0


_strangers: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _without_strangers() -> None:
    """Controls that other tests have left behind may not have ended yet."""
    _strangers.clear()
    _strangers.update(threading.enumerate())


def threads() -> list[threading.Thread]:
    """Those that this test has started."""
    alive = [one for one in threading.enumerate() if one not in _strangers]
    return [one for one in alive if one.name == "headgate-pressure"]


def until_lowered(control: PressureControl) -> None:
    """Wait until a step has been taken under pressure."""
    is_lowered = threading.Event()
    forget = control.on_change(lambda _: is_lowered.set())
    control.signal("db", 2.0)
    assert is_lowered.wait(SOON)
    forget()


def test_a_thread_takes_steps_from_the_first_request_on_until_it_is_closed() -> None:
    control = PressureControl(QUICK)
    assert not threads()
    control.record(latency_ns=1)
    until_lowered(control)
    assert control.factor < 1
    (thread,) = threads()
    assert thread.daemon
    control.start()
    assert threads() == [thread]
    control.close()
    assert not thread.is_alive()
    control.record(latency_ns=1)
    control.start()
    assert not threads()


def test_a_thread_does_not_keep_its_control() -> None:
    control = PressureControl(replace(QUICK, interval_ns=3600 * SECOND))
    control.start()
    (thread,) = threads()
    gone = weakref.ref(control)
    while not control._closing._wakers:  # asleep
        threading.Event().wait(0.001)
    del control
    gc.collect()
    assert gone() is None
    thread.join(SOON)
    assert not thread.is_alive()


def test_another_process_starts_its_own_thread_with_its_first_request() -> None:
    control = PressureControl(QUICK)
    control.start()
    until_lowered(control)
    (before,) = threads()
    closing = control._closing
    control.after_fork()  # as after a fork, where the thread is gone
    closing.set()
    before.join(SOON)
    assert control.factor < 1, "what is in force is as true here"
    control.record(latency_ns=1)
    (after,) = threads()
    assert after is not before
    control.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_takes_steps_of_its_own() -> None:
    control = PressureControl(QUICK)
    control.start()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            control.record(latency_ns=1)
            until_lowered(control)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert control.factor == 1
    control.close()


def test_a_thread_that_broke_is_replaced_with_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(MemoryStore):
        def run(self, operation: object) -> object:  # type: ignore[override]  # whatever it is
            raise ZeroDivisionError

    is_broken = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: is_broken.set())
    control = PressureControl(QUICK, store=Broken())
    control.start()
    assert is_broken.wait(SOON)
    control._store = MemoryStore()
    control.record(latency_ns=1)
    until_lowered(control)
    control.close()


def test_threads_that_break_do_not_come_faster_than_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Broken(MemoryStore):
        def run(self, operation: object) -> object:  # type: ignore[override]  # whatever it is
            tried.append(operation)
            raise ZeroDivisionError

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    control = PressureControl(replace(QUICK, interval_ns=3600 * SECOND), store=Broken())
    control.start()
    while not tried:
        threading.Event().wait(0.001)
    for _ in range(100):
        control.record(latency_ns=1)
    assert len(tried) == len(threads()) == 1
    control.close()
    assert not threads()


def virtual() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_a_task_takes_one_step_each_interval() -> None:
    async def main() -> None:
        loop = virtual()
        control = AsyncPressureControl(Pressure(), clock=loop.time_ns)
        seen = []
        control.on_change(lambda factor: seen.append((loop.time(), factor)))
        control.start()
        control.signal("db", 2.0, lasts=100)
        await asyncio.sleep(6.5)
        assert [at for at, _ in seen] == [0, 2, 4, 6]
        await control.aclose()
        await asyncio.sleep(10)
        assert len(seen) == 4
        assert len(asyncio.all_tasks()) == 1

    run_virtually(main())


def test_several_controls_on_one_store_agree_and_newcomers_hear_it_at_once() -> None:
    async def main() -> None:
        loop = virtual()
        store = MemoryStore(clock=loop.time_ns)

        def control() -> AsyncPressureControl:
            return AsyncPressureControl(Pressure(), store=store, clock=loop.time_ns)

        old = [control() for _ in range(3)]
        for one in old:
            one.start()
        for _ in range(60):
            for one in old:
                one.record(latency_ns=1)
                one.signal("db", 2.0)
            await asyncio.sleep(0.5)
        new = control()
        new.start()
        await asyncio.sleep(0.1)
        assert {one.factor for one in (*old, new)} == {Fraction(1, 10)}
        for one in (*old, new):
            await one.aclose()

    run_virtually(main())


def test_while_the_store_is_gone_steps_go_on() -> None:
    class Gone(MemoryStore):
        async def arun(self, operation: object) -> object:  # type: ignore[override]  # whatever
            raise StoreError("it is gone")

    async def main() -> None:
        loop = virtual()
        control = AsyncPressureControl(Pressure(), store=Gone(), clock=loop.time_ns)
        control.start()
        control.signal("db", 2.0)
        await asyncio.sleep(1.5)
        assert control.factor < 1
        await control.aclose()

    run_virtually(main())


def test_when_its_loop_has_ended_it_goes_on_in_the_next_one() -> None:
    control = AsyncPressureControl(Pressure())

    async def main() -> None:
        control.record(latency_ns=1)
        before = control.factor
        control.signal("db", 2.0, lasts=1_000)
        await asyncio.sleep(2.5)
        assert control.factor < before

    run_virtually(main())
    control.record(latency_ns=1)  # from a thread without a loop: nothing happens
    run_virtually(main())


def test_a_task_does_not_keep_its_control() -> None:
    async def main() -> None:
        control = AsyncPressureControl(Pressure())
        control.start()
        await asyncio.sleep(1.5)
        gone = weakref.ref(control)
        del control
        gc.collect()
        assert gone() is None
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 1

    run_virtually(main())


def test_closing_from_another_loop_ends_the_task() -> None:
    control = AsyncPressureControl(Pressure())
    is_started, is_closed = threading.Event(), threading.Event()

    async def work() -> None:
        control.start()
        is_started.set()
        await asyncio.to_thread(is_closed.wait, SOON)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert is_started.wait(SOON)
    asyncio.run(control.aclose())
    is_closed.set()
    thread.join(SOON)
    assert not thread.is_alive()


def test_loops_that_come_and_go_do_not_hurry_it() -> None:
    control = AsyncPressureControl(replace(Pressure(), interval_ns=3600 * SECOND))
    steps = 0
    advance = control.advance

    def counted(now_ns: int) -> PublishValue:
        nonlocal steps
        steps += 1
        return advance(now_ns)

    control.advance = counted  # type: ignore[method-assign]  # to count

    async def request() -> None:
        control.record(latency_ns=1)
        await asyncio.sleep(0)

    for _ in range(5):
        asyncio.run(request())
    assert steps == 1
    assert control._readings.fresh() == 4, "of those since, none is forgotten"


@pytest.mark.parametrize("kind", [PressureControl, AsyncPressureControl])
def test_a_url_is_no_store_and_whoever_gives_one_is_told_what_is(
    kind: type[PressureControl | AsyncPressureControl],
) -> None:
    with pytest.raises(OptionError, match=r"such as RedisStore\('redis://localhost'\)"):
        kind(QUICK, store="redis://localhost")  # type: ignore[arg-type]  # on purpose
