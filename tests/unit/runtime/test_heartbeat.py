"""Leases are renewed in the background, for as long as they are held and no longer."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import TYPE_CHECKING

import pytest

from headgate.errors import StoreError
from headgate.runtime import heartbeat
from headgate.runtime.drivers import drive
from headgate.runtime.effects import Signal, Sleep, Wait
from headgate.runtime.heartbeat import HEART, Beat, Heart, StartHeartbeat
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND
from tests.support.heartbeats import StillHeart

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.runtime.effects import Effects

SOON = 30.0
"""Seconds after which a test gives up."""


class Owner:
    """Somebody who holds a lease."""


class Store:
    """What is said to a renewal: the next answer, over and over the last."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.clock: ManualClock | None = None
        self.times: list[int] = []

    def renew(self) -> bool:
        self.asked += 1
        if self.clock is not None:
            self.times.append(self.clock())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def renewal(self) -> Effects[bool]:
        yield Sleep(0)
        return self.renew()


def renewal(renew: Callable[[], bool]) -> Callable[[], Effects[bool]]:
    """*renew* as a generator of effects."""

    def effects() -> Effects[bool]:
        yield Sleep(0)
        return renew()

    return effects


def setting(event: threading.Event) -> Callable[[], bool]:
    """A renewal that sets *event*."""

    def renew() -> bool:
        event.set()
        return True

    return renew


GONE = StoreError("gone", reason="unreachable")


class TestHeart:
    """A lease of 300 ns, which is due every 100."""

    def beating(self, *answers: bool | Exception) -> tuple[Beat, Store, Callable[[int], None]]:
        clock, store = ManualClock(0), Store(*answers)
        heart, store.clock = StillHeart(clock), clock

        def pass_time(ns: int) -> None:
            for _ in range(ns // 5):
                clock.advance_ns(5)
                if (due_ns := heart.next_due_ns()) is not None and due_ns <= clock():
                    drive(heart.renew_due())

        return heart.beat(store.renewal, 100), store, pass_time

    def test_a_lease_is_renewed_while_it_is_held(self) -> None:
        beat, store, pass_time = self.beating(True)
        pass_time(1_000)
        assert store.times == [100 * n for n in range(1, 11)]
        assert not beat.is_lost
        beat.stop()
        beat.stop()
        pass_time(1_000)
        assert store.asked == 10

    def test_a_lease_that_the_store_does_not_know_is_lost(self) -> None:
        beat, store, pass_time = self.beating(True, True, False)
        pass_time(1_000)
        assert beat.is_lost
        assert store.asked == 3

    def test_a_failed_renewal_is_tried_again_until_the_lease_has_run_out(self) -> None:
        beat, store, pass_time = self.beating(GONE)
        pass_time(295)
        assert not beat.is_lost
        pass_time(5)
        assert beat.is_lost
        assert store.times == [100, 125, 150, 175, 200, 225, 250, 275]
        pass_time(1_000)
        assert store.asked == 8

    def test_one_success_is_enough(self) -> None:
        beat, store, pass_time = self.beating(*[GONE] * 7, True)
        pass_time(375)
        assert store.times[-2:] == [275, 375]
        assert not beat.is_lost

    def test_an_error_of_any_other_kind_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        beat, _, pass_time = self.beating(GONE, ValueError("a mistake"), True)
        pass_time(1_000)
        assert not beat.is_lost
        assert [one.exc_info is not None for one in caplog.records] == [True]

    def test_it_is_lost_when_nobody_came_to_ask_for_as_long_as_it_lasts(self) -> None:
        clock = ManualClock(0)
        beat = StillHeart(clock).beat(Store(True).renewal, 100)
        clock.advance_ns(299)
        assert not beat.is_lost
        clock.advance_ns(1)
        assert beat.is_lost

    def test_it_ends_when_nobody_is_left_who_could_give_the_lease_back(self) -> None:
        store, owner, heart = Store(True), Owner(), StillHeart(ManualClock(0))
        beat = heart.beat(store.renewal, 100, owner)
        heart.renew_at(100)
        del owner
        gc.collect()
        heart.renew_at(200)
        assert store.asked == 1
        assert beat.is_over

    def test_a_beat_that_is_stopped_while_it_is_renewed_ends(self) -> None:
        heart = StillHeart(ManualClock(0))
        beats: list[Beat] = []

        def renew() -> Effects[bool]:
            beats[0].stop()
            yield Sleep(0)
            return True

        beats.append(heart.beat(renew, 100))
        heart.renew_at(100)
        assert beats[0].is_over
        assert heart.next_due_ns() is None

    def test_a_round_renews_what_is_due_soon_too(self) -> None:
        heart, store = StillHeart(ManualClock(0)), Store(True)
        for every in (100, 112, 200):
            heart.beat(store.renewal, every)
        heart.renew_at(100)
        assert store.asked == 2


class TestThread:
    def test_threads_renew_all_and_end_when_there_is_nothing_to_do(self) -> None:
        heart, threads, done = Heart(), set[threading.Thread](), threading.Semaphore(0)

        def renew() -> bool:
            threads.add(threading.current_thread())
            done.release()
            return True

        beats = [heart.beat(renewal(renew), (n + 10) * 5 * MILLISECOND) for n in range(50)]
        for _ in range(200):
            assert done.acquire(timeout=SOON)
        for beat in beats:
            beat.stop()
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive()
            assert thread.daemon
            assert thread.name == "headgate-heartbeat"
        while done.acquire(blocking=False):
            pass
        again = heart.beat(renewal(renew), 100 * MILLISECOND)
        assert done.acquire(timeout=SOON)
        again.stop()

    def test_not_more_than_a_few_renewals_that_hang_have_a_thread(self) -> None:
        heart, go_on, busy = Heart(), threading.Event(), threading.Semaphore(0)

        def renew() -> bool:
            busy.release()
            return go_on.wait(SOON)

        beats = [heart.beat(renewal(renew), 100 * MILLISECOND) for _ in range(20)]
        for _ in range(heartbeat.THREADS + 1):  # the last in the thread of the rounds
            assert busy.acquire(timeout=SOON)
        assert not busy.acquire(timeout=0.01)
        go_on.set()
        for beat in beats:
            beat.stop()

    def test_a_renewal_that_hangs_does_not_keep_others_waiting(self) -> None:
        heart, go_on, done = Heart(), threading.Event(), threading.Semaphore(0)

        def renew() -> bool:
            done.release()
            return True

        hanging = heart.beat(renewal(lambda: go_on.wait(SOON)), 100 * MILLISECOND)
        # Not so often that a lease is lost when the machine is busy with something else.
        others = [heart.beat(renewal(renew), 100 * MILLISECOND) for _ in range(5)]
        for _ in range(20):
            assert done.acquire(timeout=SOON)
        assert not go_on.is_set()
        go_on.set()
        for beat in (hanging, *others):
            beat.stop()

    def test_a_beat_that_is_due_earlier_than_all_others_is_not_late(self) -> None:
        heart, done = Heart(), threading.Event()
        late = heart.beat(Store(True).renewal, 10**6 * SECOND)
        soon = heart.beat(renewal(setting(done)), 100 * MILLISECOND)
        assert done.wait(SOON)
        late.stop()
        soon.stop()

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_process_renews_only_what_is_its_own(self) -> None:
        beat = HEART.beat(Store(True).renewal, 1_000 * SECOND)
        child = os.fork()
        if not child:
            done = threading.Event()
            try:
                is_idle = not HEART.is_running and not HEART.beats
                beat.stop()
                HEART.beat(renewal(setting(done)), 100 * MILLISECOND)
                os._exit(0 if is_idle and done.wait(SOON) else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        beat.stop()
        assert os.waitstatus_to_exitcode(status) == 0


async def started(
    renew: Callable[[], Effects[bool]], lease_ns: int, owner: object | None = None
) -> Beat:
    return await StartHeartbeat(renew, lease_ns, owner).aperform()


def hanging() -> Effects[bool]:
    """A renewal that hangs for ever."""
    yield Wait(Signal())
    return True


class TestLoop:
    def test_a_lease_is_renewed_while_it_is_held(self) -> None:
        async def main() -> None:
            store = Store(True)
            beat = await started(store.renewal, 3 * SECOND)
            await asyncio.sleep(10.5)
            assert store.asked == 10
            assert not beat.is_lost
            beat.stop()
            await asyncio.sleep(10)
            assert store.asked == 10
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtually(main())

    def test_failures_are_tried_again_and_a_refusal_is_not(self) -> None:
        async def main() -> None:
            store = Store(GONE, GONE, True, False)
            beat = await started(store.renewal, 12 * SECOND)
            await asyncio.sleep(9)
            assert (store.asked, beat.is_lost) == (3, False)
            await asyncio.sleep(100)
            assert (store.asked, beat.is_lost) == (4, True)

        run_virtually(main())

    def test_it_ends_when_nobody_is_left_who_could_give_the_lease_back(self) -> None:
        async def main() -> None:
            store, owner = Store(True), Owner()
            await started(store.renewal, 3 * SECOND, owner)
            await asyncio.sleep(2.5)
            del owner
            gc.collect()
            await asyncio.sleep(10)
            assert store.asked == 2
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtually(main())

    def test_it_is_lost_when_a_renewal_hangs_and_others_are_not_late(self) -> None:
        async def main() -> None:
            store = Store(True)
            beats = [await started(hanging, 3 * SECOND) for _ in range(9)]
            other = await started(store.renewal, 3 * SECOND)
            await asyncio.sleep(2.9)
            assert not beats[0].is_lost
            await asyncio.sleep(0.2)
            assert all(beat.is_lost and beat.is_over for beat in beats)
            assert (store.asked, other.is_lost) == (3, False)
            other.stop()

        run_virtually(main())

    def test_it_can_be_stopped_from_another_thread_and_after_its_loop_has_ended(self) -> None:
        async def main() -> Beat:
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()

            def renew() -> Effects[bool]:
                loop.call_soon(begun.set)
                return (yield from hanging())

            beat = await started(renew, 300 * MILLISECOND)
            await asyncio.wait_for(begun.wait(), SOON)
            await asyncio.to_thread(beat.stop)
            assert beat.is_over
            return await started(Store(True).renewal, 3 * SECOND)

        asyncio.run(main()).stop()
