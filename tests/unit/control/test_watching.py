"""The thread and the task that look: they start, are woken, and end."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headgate.control import AsyncPolicyWatcher, PolicyFiles, PolicyWatcher, State
from headgate.errors import OptionError
from tests.support.policy_files import BAD, Applied, policy_text, save

if TYPE_CHECKING:
    from pathlib import Path

NEVER = 3600.0
SOON = 0.001


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(policy_text())
    return file


Threads = Callable[[], list[threading.Thread]]


@pytest.fixture
def threads() -> Threads:
    """The threads of watchers that were started since: other tests may have left some behind."""
    before = set(threading.enumerate())

    def found() -> list[threading.Thread]:
        since = [one for one in threading.enumerate() if one not in before]
        return [one for one in since if one.name == "headgate-policy-watcher"]

    return found


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf")])
def test_an_interval_must_be_a_time(file: Path, interval: float) -> None:
    with pytest.raises(OptionError, match="interval"):
        PolicyWatcher(PolicyFiles(file), Applied(), interval=interval)


class TestThread:
    def test_what_is_there_is_in_force_when_it_has_started(self, file: Path) -> None:
        applied = Applied()
        with PolicyWatcher(PolicyFiles(file), applied, interval=NEVER) as watcher:
            assert applied.rules == ["login"]
            assert watcher.state.revision == 1
            assert watcher.is_watching
        assert not watcher.is_watching

    def test_a_bad_file_does_not_keep_it_from_starting(self, file: Path) -> None:
        file.write_text(BAD)
        with PolicyWatcher(PolicyFiles(file), Applied(), interval=NEVER) as watcher:
            assert watcher.state.problems
            assert watcher.is_watching

    def test_it_notices_a_change_by_itself(self, file: Path) -> None:
        states: queue.Queue[State] = queue.Queue()
        watcher = PolicyWatcher(PolicyFiles(file), Applied(), interval=SOON, on_change=states.put)
        with watcher:
            assert states.get().revision == 1
            file.write_text(policy_text(rule="new"))
            assert states.get(timeout=60).is_current

    def test_it_is_woken_at_once(self, file: Path) -> None:
        states: queue.Queue[State] = queue.Queue()
        watcher = PolicyWatcher(PolicyFiles(file), Applied(), interval=NEVER, on_change=states.put)
        with watcher:
            states.get()
            file.write_text(BAD)
            watcher.check_soon()
            assert states.get(timeout=60).problems

    def test_to_start_and_to_stop_twice_is_to_do_it_once(
        self, file: Path, threads: Threads
    ) -> None:
        watcher = PolicyWatcher(PolicyFiles(file), Applied(), interval=NEVER)
        watcher.stop()
        watcher.start()
        watcher.start()
        assert len(threads()) == 1
        watcher.stop()
        watcher.stop()
        assert threads() == []

    def test_it_can_be_started_again(self, file: Path) -> None:
        applied = Applied()
        watcher = PolicyWatcher(PolicyFiles(file), applied, interval=NEVER)
        for rule in ("one", "two"):
            file.write_text(policy_text(rule=rule))
            with watcher:
                assert applied.rules == [rule]

    def test_a_wish_of_one_that_does_not_watch_is_nothing(self, file: Path) -> None:
        watcher = PolicyWatcher(PolicyFiles(file), Applied())
        watcher.check_soon()
        assert watcher.state == State()

    def test_it_can_be_stopped_from_within(self, file: Path, threads: Threads) -> None:
        stopped = threading.Event()

        def stop(state: State) -> None:
            if state.problems:
                watcher.stop()
                stopped.set()

        watcher = PolicyWatcher(PolicyFiles(file), Applied(), interval=NEVER, on_change=stop)
        watcher.start()
        (thread,) = threads()
        file.write_text(BAD)
        watcher.check_soon()
        assert stopped.wait(timeout=60)
        thread.join(timeout=60)
        assert not thread.is_alive()

    def test_who_is_told_may_ask_in_turn(self, file: Path) -> None:
        seen: list[State] = []

        def ask(state: State) -> None:
            seen.append(watcher.check_now())

        watcher = PolicyWatcher(PolicyFiles(file), Applied(), on_change=ask)
        watcher.check_now()
        assert [state.revision for state in seen] == [1]


class TestTask:
    def test_what_is_there_is_in_force_when_it_has_started(self, file: Path) -> None:
        async def main() -> None:
            applied = Applied()
            async with AsyncPolicyWatcher(PolicyFiles(file), applied, interval=NEVER) as watcher:
                assert applied.rules == ["login"]
                assert watcher.is_watching
            assert not watcher.is_watching
            assert len(asyncio.all_tasks()) == 1

        asyncio.run(main())

    def test_it_notices_a_change_by_itself_and_is_woken_at_once(self, file: Path) -> None:
        async def main(interval: float, *, wake: bool) -> None:
            loop, states = asyncio.get_running_loop(), asyncio.Queue[State]()

            def tell(state: State) -> None:
                loop.call_soon_threadsafe(states.put_nowait, state)

            files = PolicyFiles(file)
            watcher = AsyncPolicyWatcher(files, Applied(), interval=interval, on_change=tell)
            async with watcher, asyncio.timeout(60):
                assert (await states.get()).revision == 1
                save(file, policy_text(rule=f"new-{interval}"))
                if wake:
                    watcher.check_soon()
                assert (await states.get()).is_current

        asyncio.run(main(SOON, wake=False))
        asyncio.run(main(NEVER, wake=True))

    def test_nothing_is_read_or_applied_in_the_thread_of_the_loop(self, file: Path) -> None:
        where: list[threading.Thread] = []

        def apply(_: object) -> int:
            where.append(threading.current_thread())
            return 1

        async def main() -> None:
            watcher = AsyncPolicyWatcher(PolicyFiles(file), apply, interval=NEVER)
            await watcher.check_now()
            save(file, policy_text(rule="new"))
            async with watcher:
                pass

        asyncio.run(main())
        assert len(where) == 2
        assert threading.main_thread() not in where

    def test_to_start_and_to_stop_twice_is_to_do_it_once(
        self, file: Path, threads: Threads
    ) -> None:
        async def main() -> None:
            watcher = AsyncPolicyWatcher(PolicyFiles(file), Applied(), interval=NEVER)
            watcher.check_soon()
            await watcher.stop()
            await asyncio.gather(watcher.start(), watcher.start())
            await watcher.start()
            assert len(asyncio.all_tasks()) == 2
            await asyncio.gather(watcher.stop(), watcher.stop())
            assert len(asyncio.all_tasks()) == 1

        asyncio.run(main())

    def test_it_can_be_started_again_in_another_loop(self, file: Path) -> None:
        watcher = AsyncPolicyWatcher(PolicyFiles(file), Applied(), interval=NEVER)

        async def main() -> None:
            await watcher.start()  # and is cancelled with the loop
            assert watcher.is_watching

        asyncio.run(main())
        assert not watcher.is_watching
        asyncio.run(main())

    def test_a_mistake_in_what_applies_it_ends_the_task_with_a_word(
        self, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def mistake(_: object) -> int:
            raise TypeError("a mistake")

        async def main() -> None:
            loaded = PolicyFiles(file).load()
            watcher = AsyncPolicyWatcher(
                PolicyFiles(file), mistake, interval=NEVER, in_force=loaded
            )
            async with watcher:
                save(file, policy_text(rule="new"))
                watcher.check_soon()
                assert watcher._task is not None
                await asyncio.wait([watcher._task])
                assert not watcher.is_watching

        asyncio.run(main())
        (record,) = [one for one in caplog.records if one.levelno == logging.CRITICAL]
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], TypeError)
