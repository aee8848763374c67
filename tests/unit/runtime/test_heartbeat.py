"""Leases are renewed in the background, for as long as they are held and no longer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from typing import TYPE_CHECKING

import pytest

from headgate.errors import OptionError, StoreError
from headgate.runtime import heartbeat
from headgate.runtime.heartbeat import HEART, AsyncBeat, Beat, Heart, Pulse, Schedule
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

SOON = 30.0
"""Seconds after which a test gives up."""


class StillHeart(Heart):
    """One without a thread: the tests say when it beats."""

    is_running = True  # so none is started


class Owner:
    """Somebody who holds a lease."""


class Store:
    """What is said to a renewal: the next answer, over and over the last."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def renew(self) -> bool:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def arenew(self) -> bool:
        await asyncio.sleep(0)
        return self.renew()


def setting(event: threading.Event) -> Callable[[], bool]:
    """A renewal that sets *event*."""

    def renew() -> bool:
        event.set()
        return True

    return renew


GONE = StoreError("gone", reason="unreachable")


class TestPulse:
    def test_it_is_due_after_each_part_of_the_lease(self) -> None:
        pulse = Pulse(10, 100)
        assert pulse.due_ns == 110
        pulse.renewed(112)
        assert pulse.due_ns == 122

    def test_a_failed_renewal_is_tried_again_until_the_lease_has_run_out(self) -> None:
        pulse = Pulse(100, 0)
        tried = []
        while not pulse.is_lost:
            tried.append(pulse.due_ns)
            pulse.failed(pulse.due_ns)
        assert tried == [100, 125, 150, 175, 200, 225, 250, 275, 300]

    def test_one_success_is_enough(self) -> None:
        pulse = Pulse(100, 0)
        for _ in range(7):
            pulse.failed(pulse.due_ns)
        pulse.renewed(pulse.due_ns)
        assert not pulse.is_lost
        assert pulse.due_ns == 375

    def test_it_has_lapsed_if_nobody_asked_for_as_long_as_it_lasts(self) -> None:
        pulse = Pulse(100, 0)
        assert (pulse.has_lapsed(299), pulse.has_lapsed(300)) == (False, True)
        pulse.renewed(250)
        assert (pulse.has_lapsed(549), pulse.has_lapsed(550)) == (False, True)

    def test_a_lease_of_no_time_cannot_be_renewed(self) -> None:
        with pytest.raises(OptionError, match="every_ns"):
            Pulse(0, 0)


class TestSchedule:
    def test_what_is_due_first_comes_first_and_what_is_over_never(self) -> None:
        schedule, heart = Schedule(), Heart()
        beats = [Beat(heart, lambda: True, every, 0) for every in (30, 10, 20)]
        assert [schedule.add(beat) for beat in beats] == [True, True, False]
        assert schedule.wait_ns(4) == 6
        assert schedule.pop(9) is None
        schedule.end(beats[1])
        assert schedule.wait_ns(4) == 16
        assert schedule.pop(100) is beats[2]
        assert schedule.pop(100) is beats[0]
        assert schedule.wait_ns(0) is None

    def test_it_does_not_grow_with_what_is_over(self) -> None:
        schedule, heart = Schedule(), Heart()
        for _ in range(10_000):
            beat = Beat(heart, lambda: True, SECOND, 0)
            schedule.add(beat)
            schedule.end(beat)
            schedule.end(beat)
        assert len(schedule) < 200


class TestHeart:
    def beating(self, *answers: bool | Exception) -> tuple[Beat, Store, Callable[[int], None]]:
        clock, store = ManualClock(0), Store(*answers)
        heart = StillHeart(clock=clock)

        def pass_time(ns: int) -> None:
            for _ in range(ns // 10):
                clock.advance_ns(10)
                while heart.renew_due(clock()):
                    pass

        return heart.beat(store.renew, 100), store, pass_time

    def test_a_lease_is_renewed_while_it_is_held(self) -> None:
        beat, store, pass_time = self.beating(True)
        pass_time(1_000)
        assert store.asked == 10
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

    def test_it_survives_failures_that_end_in_time(self) -> None:
        beat, store, pass_time = self.beating(GONE, GONE, ValueError("a mistake"), True)
        logging.getLogger("headgate.runtime.heartbeat").disabled = True
        try:
            pass_time(1_000)
        finally:
            logging.getLogger("headgate.runtime.heartbeat").disabled = False
        assert not beat.is_lost
        assert store.asked > 10

    def test_it_is_lost_when_nobody_could_be_asked_for_as_long_as_it_lasts(self) -> None:
        beat, store, pass_time = self.beating(GONE)
        pass_time(290)
        assert not beat.is_lost
        pass_time(10)
        assert beat.is_lost
        asked = store.asked
        pass_time(1_000)
        assert store.asked == asked

    def test_it_is_lost_when_nobody_came_to_ask_for_as_long_as_it_lasts(self) -> None:
        clock = ManualClock(0)
        beat = StillHeart(clock=clock).beat(lambda: True, 100)
        clock.advance_ns(299)
        assert not beat.is_lost
        clock.advance_ns(1)
        assert beat.is_lost

    def test_it_ends_when_nobody_is_left_who_could_give_the_lease_back(self) -> None:
        clock, store, owner = ManualClock(0), Store(True), Owner()
        heart = StillHeart(clock=clock)
        beat = heart.beat(store.renew, 100, owner)
        clock.advance_ns(100)
        assert heart.renew_due(clock())
        del owner
        gc.collect()
        clock.advance_ns(100)
        assert heart.renew_due(clock())
        assert store.asked == 1
        assert beat.is_over
        clock.advance_ns(1_000)
        assert not heart.renew_due(clock())

    def test_a_beat_that_is_stopped_while_it_is_renewed_ends(self) -> None:
        clock = ManualClock(0)
        heart = StillHeart(clock=clock)
        beats: list[Beat] = []

        def renew() -> bool:
            beats[0].stop()
            return True

        beats.append(heart.beat(renew, 100))
        clock.advance_ns(100)
        assert heart.renew_due(clock())
        clock.advance_ns(1_000)
        assert not heart.renew_due(clock())


class TestThread:
    def test_few_threads_renew_all_and_end_when_there_is_nothing_to_do(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(heartbeat, "LINGER_S", 0.001)
        heart, threads, done = Heart(), set[threading.Thread](), threading.Semaphore(0)

        def renew() -> bool:
            threads.add(threading.current_thread())
            done.release()
            return True

        beats = [heart.beat(renew, (n + 1) * MILLISECOND) for n in range(50)]
        for _ in range(500):
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
        again = heart.beat(renew, MILLISECOND)
        assert done.acquire(timeout=SOON)
        again.stop()

    def test_there_are_never_more_threads_than_renewals_may_be_under_way(self) -> None:
        heart, go_on, busy = Heart(), threading.Event(), threading.Semaphore(0)

        def renew() -> bool:
            busy.release()
            return go_on.wait(SOON)

        beats = [heart.beat(renew, MILLISECOND) for _ in range(20)]
        for _ in range(heartbeat.THREADS):
            assert busy.acquire(timeout=SOON)
        assert len(heart._threads) == heartbeat.THREADS
        assert not busy.acquire(timeout=0.01)
        go_on.set()
        for beat in beats:
            beat.stop()

    def test_a_renewal_that_hangs_does_not_keep_others_waiting(self) -> None:
        heart, go_on, done = Heart(), threading.Event(), threading.Semaphore(0)

        def renew() -> bool:
            done.release()
            return True

        hanging = heart.beat(lambda: go_on.wait(SOON), MILLISECOND)
        # Not so often that a lease is lost when the machine is busy with something else.
        others = [heart.beat(renew, 10 * MILLISECOND) for _ in range(5)]
        for _ in range(100):
            assert done.acquire(timeout=SOON)
        assert not go_on.is_set()
        go_on.set()
        for beat in (hanging, *others):
            beat.stop()

    def test_a_beat_that_is_due_earlier_than_all_others_is_not_late(self) -> None:
        heart, done = Heart(), threading.Event()
        late = heart.beat(lambda: True, 10**6 * SECOND)
        soon = heart.beat(setting(done), MILLISECOND)
        assert done.wait(SOON)
        late.stop()
        soon.stop()

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_process_renews_only_what_is_its_own(self) -> None:
        beat = HEART.beat(lambda: True, 1_000 * SECOND)
        child = os.fork()
        if not child:
            done = threading.Event()
            try:
                is_idle = not HEART.is_running and not len(HEART._schedule)
                beat.stop()
                HEART.beat(setting(done), MILLISECOND)
                os._exit(0 if is_idle and done.wait(SOON) else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        beat.stop()
        assert os.waitstatus_to_exitcode(status) == 0


class TestLoop:
    def test_a_lease_is_renewed_while_it_is_held(self) -> None:
        async def main() -> None:
            store = Store(True)
            beat = AsyncBeat(store.arenew, SECOND)
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
            beat = AsyncBeat(store.arenew, 4 * SECOND)
            await asyncio.sleep(9)
            assert (store.asked, beat.is_lost) == (3, False)
            await asyncio.sleep(100)
            assert (store.asked, beat.is_lost) == (4, True)

        run_virtually(main())

    def test_it_is_lost_when_nobody_could_be_asked_for_as_long_as_it_lasts(self) -> None:
        async def main() -> None:
            beat = AsyncBeat(Store(GONE).arenew, SECOND)
            await asyncio.sleep(2.9)
            assert not beat.is_lost
            await asyncio.sleep(0.2)
            assert beat.is_lost

        run_virtually(main())

    def test_a_renewal_that_hangs_is_given_up_when_the_slot_is_released(self) -> None:
        async def main() -> None:
            beat = AsyncBeat(asyncio.Event().wait, SECOND)
            await asyncio.sleep(2)
            assert len(asyncio.all_tasks()) == 2
            beat.stop()
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1

        run_virtually(main())

    def test_it_ends_when_nobody_is_left_who_could_give_the_lease_back(self) -> None:
        async def main() -> None:
            store, owner = Store(True), Owner()
            AsyncBeat(store.arenew, SECOND, owner)
            await asyncio.sleep(2.5)
            del owner
            gc.collect()
            await asyncio.sleep(10)
            assert store.asked == 2
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtually(main())

    def test_it_is_lost_when_a_renewal_hangs_for_as_long_as_it_lasts(self) -> None:
        async def main() -> None:
            beat = AsyncBeat(asyncio.Event().wait, SECOND)
            await asyncio.sleep(2.9)
            assert not beat.is_lost
            await asyncio.sleep(0.2)
            assert beat.is_lost
            beat.stop()

        run_virtually(main())

    def test_it_can_be_stopped_from_another_thread_and_after_its_loop_has_ended(self) -> None:
        async def main() -> AsyncBeat:
            begun, given_up = asyncio.Event(), asyncio.Event()

            async def renew() -> bool:
                begun.set()
                try:
                    return await asyncio.Event().wait()
                finally:
                    given_up.set()

            beat = AsyncBeat(renew, MILLISECOND)
            await asyncio.wait_for(begun.wait(), SOON)
            await asyncio.to_thread(beat.stop)
            await asyncio.wait_for(given_up.wait(), SOON)
            return AsyncBeat(Store(True).arenew, SECOND)

        asyncio.run(main()).stop()
