"""The newest revision comes into force, and what is in force survives faults of the source."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control import PolicyWatcher, State
from headgate.control.revision import Revision, revision_from_json
from headgate.errors import OptionError
from headgate.observability import MetricRegistry
from tests.support.shaky_source import SOON, Engine, ShakySource, Watched, made, watching

if TYPE_CHECKING:
    from pathlib import Path


def is_at(number: int, state: State) -> bool:
    return state.revision == number


@pytest.fixture
def source() -> ShakySource:
    return ShakySource(made(1))


def test_the_newest_revision_is_in_force_when_it_has_started(source: ShakySource) -> None:
    with watching(source) as watched:
        assert watched.engine.revisions == [1]
        assert (watched.state.revision, watched.state.loaded_at_ns) == (1, 77)
        assert watched.state.loaded_at_ns == 77
        assert watched.state.is_current
        assert watched.state.not_ready == ()


def test_each_further_revision_comes_into_force(source: ShakySource) -> None:
    with watching(source) as watched:
        for number in (2, 3):
            source.commit(made(number, f"{number}/s"))
            watched.until(partial(is_at, number))
        assert watched.engine.limits == ["5/s", "2/s", "3/s"]
        assert watched.engine.revisions == [1, 2, 3]


def test_a_revision_that_was_committed_here_is_in_force_at_once_and_once(
    source: ShakySource,
) -> None:
    watched = Watched(source)
    watched.watcher.check_now()
    source.commit(made(2))
    watched.watcher.learn(made(2))
    assert watched.engine.revisions == [1, 2]
    source.commit(made(3))
    watched.watcher.check_now()
    watched.watcher.learn(made(2))
    assert watched.engine.revisions == [1, 2, 3]


def test_a_revision_committed_while_the_source_is_read_is_not_set_back(
    source: ShakySource,
) -> None:
    watched = Watched(source)
    watched.watcher.check_now()
    head = source.head

    def late() -> Revision:
        newest = head()
        if newest.number == 2:
            source.commit(made(3))
            watched.watcher.learn(made(3))
        return newest

    source.commit(made(2))
    source.head = late  # type: ignore[method-assign]
    watched.watcher.check_now()
    assert watched.engine.revisions == [1, 3]


def test_a_lost_watch_is_begun_again_and_nothing_is_missed(source: ShakySource) -> None:
    with watching(source) as watched:
        source.fail()
        state = watched.until(lambda state: state.is_stale)
        assert not state.is_current
        assert state.trouble is not None
        assert state.not_ready == ()
        source.commit(made(2))
        source.recover()
        watched.until(lambda state: state.revision == 2)
        assert watched.state.is_current
        assert watched.state.trouble is None


def test_what_is_in_force_is_not_applied_again_after_an_outage(source: ShakySource) -> None:
    with watching(source) as watched:
        source.fail()
        watched.until(lambda state: state.is_stale)
        source.recover()
        watched.until(lambda state: not state.is_stale)
        assert watched.engine.revisions == [1]


def test_the_source_is_read_at_times_even_if_a_watch_is_silent(source: ShakySource) -> None:
    with watching(source, longest_watch=0.001) as watched:
        source.restore(made(7))
        watched.until(lambda state: state.revision == 7)


def test_a_source_that_went_back_is_followed(
    source: ShakySource, caplog: pytest.LogCaptureFixture
) -> None:
    source.restore(made(9))
    with watching(source) as watched:
        source.fail()
        watched.until(lambda state: state.is_stale)
        source.restore(made(3, "3/s"))
        source.recover()
        watched.until(lambda state: state.revision == 3)
        assert watched.engine.limits == ["5/s", "3/s"]
    assert "went back from revision 9 to 3" in caplog.text


def test_the_same_number_with_another_content_is_another_revision(source: ShakySource) -> None:
    with watching(source) as watched:
        source.restore(made(1, "3/s"))
        watched.watcher.check_now()
        assert watched.engine.limits == ["5/s", "3/s"]


def test_a_source_that_was_emptied_lifts_no_limit(
    source: ShakySource, caplog: pytest.LogCaptureFixture
) -> None:
    with watching(source) as watched:
        source.restore(Revision(0))
        state = watched.watcher.check_now()
        assert (state.revision, state.rejected, state.is_current) == (1, 0, False)
        assert "the source is empty; revision 1 stays in force" in caplog.text
        assert watched.engine.revisions == [1]
        source.commit(made(1, "1/s"))
        watched.until(lambda state: state.is_current)
        assert watched.engine.limits == ["5/s", "1/s"]


def test_a_policy_written_to_an_emptied_source_is_learnt_whatever_its_number() -> None:
    source = ShakySource(made(7))
    watched = Watched(source)
    watched.watcher.check_now()
    source.restore(Revision(0))
    watched.watcher.check_now()
    source.commit(made(1, "1/s"))
    watched.watcher.learn(made(1, "1/s"))
    assert watched.engine.limits == ["5/s", "1/s"]


def test_a_source_with_nothing_in_it_is_a_policy_without_rules() -> None:
    with watching(ShakySource(Revision(0))) as watched:
        assert (watched.state.revision, watched.state.not_ready) == (0, ())
        assert [warning.message for warning in watched.state.warnings] == [
            "there are no rules: nothing is limited"
        ]


def test_an_invalid_revision_changes_nothing_and_is_reported_once(
    source: ShakySource, caplog: pytest.LogCaptureFixture
) -> None:
    measures = MetricRegistry()
    with watching(source, longest_watch=0.001, measures=measures) as watched:
        source.commit(made(2, limitt="1/s"))
        state = watched.until(lambda state: state.problems is not None)
        assert (state.revision, state.rejected, state.failures) == (1, 2, 1)
        asked = source.asked
        while source.asked < asked + 3:
            source.wake()
        assert watched.state.failures == 1
        source.commit(made(3))
        watched.until(lambda state: state.is_current)
        assert watched.engine.revisions == [1, 3]
    assert caplog.text.count("revision 2 is invalid; revision 1 stays in force") == 1
    assert measures.value("policy_load_errors", what="rules") == 1
    assert measures.value("policy_loads", what="rules") == 2


def test_a_policy_that_the_engine_refuses_counts_as_invalid(source: ShakySource) -> None:
    class Refusing(Engine):
        def __call__(self, policy: Any) -> int:
            if policy.revision > 1:
                raise OptionError("too much for me")
            return super().__call__(policy)

    watched = Watched(source, Refusing())
    watched.watcher.check_now()
    source.commit(made(2))
    state = watched.watcher.check_now()
    assert "too much for me" in str((state.problems or ("",))[0])
    assert state.revision == 1


def test_after_a_mistake_in_what_applies_it_says_so_and_goes_on(
    source: ShakySource, caplog: pytest.LogCaptureFixture
) -> None:
    class MistakenOnce(Engine):
        has_failed = False

        def __call__(self, policy: Any) -> int:
            if policy.revision == 2 and not self.has_failed:
                self.has_failed = True
                raise ZeroDivisionError
            return super().__call__(policy)

    with watching(source, MistakenOnce()) as watched:
        source.commit(made(2))
        watched.until(lambda state: state.revision == 2)
        watched.until(lambda state: state.is_current)
        assert watched.watcher.is_watching
    troubles = [one.trouble for one in watched.states if one.is_stale]
    assert troubles == ["the watcher failed: ZeroDivisionError"]
    (record,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
    assert record.exc_info is not None


class TestThread:
    def test_to_start_and_to_stop_twice_is_to_do_it_once(self, source: ShakySource) -> None:
        def threads() -> list[threading.Thread]:
            return [one for one in threading.enumerate() if one not in before]

        before = threading.enumerate()
        watcher = PolicyWatcher(source, Engine())
        watcher.stop()
        watcher.start()
        watcher.start()
        assert [one.name for one in threads()] == ["headgate-policy-watcher"]
        assert watcher.is_watching
        watcher.stop()
        watcher.stop()
        assert threads() == []
        assert not watcher.is_watching

    def test_it_can_be_started_again(self, source: ShakySource) -> None:
        watched = Watched(source)
        for number in (1, 2):
            with watched.watcher:
                assert watched.engine.revisions[-1] == number
            source.commit(made(number + 1))

    def test_it_is_woken_at_once(self, source: ShakySource) -> None:
        with watching(source) as watched:
            source.restore(made(5))  # not announced
            watched.watcher.check_soon()
            watched.until(lambda state: state.revision == 5)

    def test_it_does_not_wait_for_a_source_that_is_down_when_it_is_stopped(
        self, source: ShakySource
    ) -> None:
        source.fail()
        with watching(source, longest_wait=3600.0) as watched:
            watched.until(lambda state: state.is_stale)

    def test_a_wake_of_one_that_does_not_watch_is_nothing(self, source: ShakySource) -> None:
        watcher = PolicyWatcher(source, Engine())
        watcher.check_soon()
        assert watcher.state == State()

    def test_it_can_be_stopped_from_within(self, source: ShakySource) -> None:
        stopped = threading.Event()

        def stop(state: State) -> None:
            if state.problems:
                watcher.stop()
                stopped.set()

        watcher = PolicyWatcher(source, Engine(), on_change=stop)
        watcher.start()
        thread = watcher._thread
        assert thread is not None
        source.commit(made(2, limitt="1/s"))
        assert stopped.wait(SOON)
        thread.join(SOON)
        assert not thread.is_alive()

    def test_an_observer_may_check_in_turn(self, source: ShakySource) -> None:
        seen: list[State] = []

        def check(state: State) -> None:
            seen.append(watcher.check_now())

        watcher = PolicyWatcher(source, Engine(), on_change=check)
        watcher.check_now()
        assert [state.revision for state in seen] == [1]

    def test_an_event_loop_starts_and_stops_it_without_waiting(self, source: ShakySource) -> None:
        import asyncio

        async def main() -> None:
            watched = Watched(source)
            async with watched.watcher:
                assert watched.engine.revisions == [1]
            assert not watched.watcher.is_watching

        asyncio.run(main())


class TestLastKnownGood:
    def test_the_last_good_revision_is_kept(self, source: ShakySource, tmp_path: Path) -> None:
        kept = tmp_path / "state" / "kept.json"
        watched = Watched(source, keep=kept)
        watched.watcher.check_now()
        assert revision_from_json(kept.read_bytes()) == made(1)
        source.commit(made(2))
        watched.watcher.check_now()
        assert revision_from_json(kept.read_bytes()) == made(2)
        source.commit(made(3, limitt="1/s"))
        assert watched.watcher.check_now().problems is not None
        assert revision_from_json(kept.read_bytes()) == made(2)

    def test_it_is_what_a_service_starts_with_while_its_source_is_down(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(made(4).to_json())
        source = ShakySource(made(4))
        source.fail()
        with watching(source, keep=kept) as watched:
            assert (watched.state.revision, watched.state.is_stale) == (4, True)
            assert watched.state.not_ready == ()
            source.recover()
            watched.until(lambda state: state.is_current)
            assert watched.engine.revisions == [4]
            source.commit(made(5))
            watched.until(lambda state: state.revision == 5)
        assert "starting with revision 4, the last good one" in caplog.text

    def test_it_is_what_a_service_starts_with_if_the_newest_is_invalid(
        self, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(made(4).to_json())
        watched = Watched(ShakySource(made(5, limitt="1/s")), keep=kept)
        state = watched.watcher.check_now()
        assert (state.revision, state.rejected, state.is_stale) == (4, 5, False)
        assert state.problems
        assert watched.engine.revisions == [4]

    def test_it_is_what_a_service_starts_with_if_the_source_was_emptied(
        self, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(made(4).to_json())
        source = ShakySource(Revision(0))
        with watching(source, keep=kept) as watched:
            assert (watched.state.revision, watched.state.is_current) == (4, False)
            assert "the source is empty" in str((watched.state.problems or ("",))[0])
            source.commit(made(1, "1/s"))
            watched.until(lambda state: state.is_current)
            assert watched.engine.limits == ["5/s", "1/s"]

    def test_the_unfinished_file_of_another_process_is_left(
        self, source: ShakySource, tmp_path: Path
    ) -> None:
        kept, other = tmp_path / "kept.json", tmp_path / ".kept.json.1-ab.new"
        old = tmp_path / ".kept.json.2-cd.new"
        for path in (other, old):
            path.write_bytes(b"half")
        os.utime(old, (1, 1))
        source.fail()
        Watched(source, keep=kept).watcher.check_now()
        assert (other.exists(), old.exists()) == (True, False)

    def test_without_one_nothing_is_in_force_and_the_reason_is_given(
        self, source: ShakySource, tmp_path: Path
    ) -> None:
        source.fail()
        with watching(source, keep=tmp_path / "none") as watched:
            assert watched.state.not_ready == ("no policy is in force: nobody answers",)
            source.recover()
            watched.until(lambda state: state.revision == 1)

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]"])
    def test_a_damaged_one_is_reported_and_not_used(
        self,
        source: ShakySource,
        tmp_path: Path,
        content: bytes,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(content)
        source.fail()
        assert Watched(source, keep=kept).watcher.check_now().revision is None
        assert "the copy of the last good policy cannot be used" in caplog.text

    def test_a_disk_that_cannot_keep_it_stops_nothing(
        self, source: ShakySource, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("")
        watched = Watched(source, keep=tmp_path / "file" / "kept.json")
        assert watched.watcher.check_now().is_current
        assert "no copy of revision 1 was kept" in caplog.text
