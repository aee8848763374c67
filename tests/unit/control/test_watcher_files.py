"""The files of an app are put in force when they change, and kept out while they are invalid."""

from __future__ import annotations

import logging
import os
import queue
from typing import TYPE_CHECKING

import pytest

from headgate.control import PolicyFiles, PolicyWatcher, State
from headgate.control.file_source import FileSource, InvalidFileError
from headgate.errors import HeadgateError, LimitError, OptionError
from headgate.policy.problems import PolicyError, Problem
from headgate.testing import ManualClock
from tests.support.policy_files import BAD, WARNED, Applied, policy_text
from tests.support.shaky_source import watching

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control.files import Texts

SOON = 0.001


class App:
    """A file, a watcher of it that is not started, and all that came of it."""

    def __init__(self, path: Path, *, is_loaded: bool = False) -> None:
        self.file = path
        self.applied = Applied()
        self.states: list[State] = []
        self.clock = ManualClock()
        files = PolicyFiles(path)
        self.watcher = PolicyWatcher(
            files,
            self.applied,
            in_force=files.load() if is_loaded else None,
            on_change=self.states.append,
            clock=self.clock,
        )
        self._saves = 0

    @property
    def state(self) -> State:
        return self.watcher.state

    def save(self, text: str) -> State:
        """Put *text* in the place of the file, long ago, and check."""
        self.write(text)
        return self.watcher.check_now()

    def write(self, text: str) -> None:
        self._saves += 1
        fresh = self.file.with_name("fresh")
        fresh.write_text(text)
        os.utime(fresh, (self._saves, self._saves))  # at rest, so that nothing is waited for
        fresh.replace(self.file)


@pytest.fixture
def app(tmp_path: Path) -> App:
    """One with revision 1 in force, of a file with the rule `login`."""
    app = App(tmp_path / "rules.yaml")
    app.save(policy_text())
    app.states.clear()
    return app


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf")])
def test_an_interval_must_be_a_time(tmp_path: Path, interval: float) -> None:
    with pytest.raises(OptionError, match="interval"):
        PolicyWatcher(PolicyFiles(tmp_path), Applied(), interval=interval)


class TestCheck:
    def test_the_first_puts_the_file_in_force(self, tmp_path: Path) -> None:
        app = App(tmp_path / "rules.yaml")
        assert app.state == State()
        assert not app.state.is_current
        state = app.save(policy_text())
        assert app.applied.rules == ["login"]
        assert (state.revision, state.problems, state.failures) == (1, None, 0)
        assert state.loaded_at_ns == app.clock()
        assert state.is_current
        assert app.states == [state]

    def test_what_was_loaded_before_is_not_applied_again(self, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(policy_text())
        app = App(tmp_path / "rules.yaml", is_loaded=True)
        assert app.state.revision == 0
        app.watcher.check_now()
        assert app.applied.policies == []
        app.save(policy_text(rule="other"))
        assert app.applied.rules == ["other"]

    def test_a_touch_changes_nothing(self, app: App) -> None:
        before = app.state
        os.utime(app.file, ns=(1, 1))
        app.watcher.check_now()
        app.save(app.file.read_text())
        assert app.state is before
        assert app.states == []

    def test_a_bad_file_keeps_the_last_good_policy(self, app: App) -> None:
        before = app.state
        state = app.save(BAD)
        assert len(app.applied.policies) == 1
        assert state.problems is not None
        assert any("limitt" in str(problem) for problem in state.problems)
        assert state.failures == 1
        assert not state.is_current
        kept = ("revision", "loaded_at_ns", "fingerprint")
        assert all(getattr(state, name) == getattr(before, name) for name in kept)

    def test_a_missing_file_keeps_the_last_good_policy(self, app: App) -> None:
        app.file.unlink()
        state = app.watcher.check_now()
        assert state.revision == 1
        assert "no such file" in str(state.problems)

    def test_a_file_that_is_bad_from_the_first_leaves_nothing_in_force(
        self, tmp_path: Path
    ) -> None:
        state = App(tmp_path / "rules.yaml").save(BAD)
        assert (state.revision, state.loaded_at_ns, state.failures) == (None, None, 1)
        assert "limitt" in state.not_ready[0]

    def test_a_good_file_after_a_bad_one_is_put_in_force(self, app: App) -> None:
        app.save(BAD)
        app.clock.advance(10)
        state = app.save(policy_text(rule="new"))
        assert (state.revision, state.problems, state.failures) == (2, None, 1)
        assert state.loaded_at_ns == app.clock()
        assert app.applied.rules == ["new"]

    def test_the_old_file_after_a_bad_one_is_still_in_force(self, app: App) -> None:
        before = app.state
        good = app.file.read_text()
        app.save(BAD)
        state = app.save(good)
        assert len(app.applied.policies) == 1
        assert (state.revision, state.problems) == (before.revision, None)
        assert state.is_current

    def test_a_file_that_could_not_be_read_is_tried_again(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        app.write(policy_text(rule="new"))
        with monkeypatch.context() as broken:
            broken.setattr("os.open", fail)
            for _ in range(3):
                app.watcher.check_now()
            assert app.state.failures == 1
        app.watcher.check_now()
        assert app.applied.rules == ["new"]

    def test_a_change_within_a_step_of_the_file_systems_clock_is_noticed(self, app: App) -> None:
        """A file that was written just now is read again, although it looks the same."""
        app.file.write_text(policy_text(rule="one"))
        app.watcher.check_now()
        known = app.file.stat()
        app.file.write_text(policy_text(rule="two"))
        os.utime(app.file, ns=(known.st_atime_ns, known.st_mtime_ns))
        app.watcher.check_now()
        assert app.applied.rules == ["two"]


class TestApplying:
    def test_a_refusal_keeps_the_old_policy_and_is_reported(self, app: App) -> None:
        app.applied.refusal = LimitError("not that one")
        state = app.save(policy_text(rule="new"))
        assert state.revision == 1
        assert "not that one" in str(state.problems)
        assert state.failures == 1

    def test_the_problems_of_a_refusal_are_kept_as_they_are(self, app: App) -> None:
        problem = Problem("error", "elsewhere", "no")
        app.applied.refusal = PolicyError([problem])
        assert app.save(policy_text(rule="new")).problems == (problem,)

    def test_a_refusal_without_words_is_reported_by_its_name(self, app: App) -> None:
        app.applied.refusal = HeadgateError()
        assert "HeadgateError" in str(app.save(policy_text(rule="new")).problems)

    def test_what_was_refused_is_tried_again_on_demand(self, app: App) -> None:
        app.applied.refusal = LimitError("not now")
        app.save(policy_text(rule="new"))
        app.applied.refusal = None
        assert app.watcher.check_now().revision == 2

    def test_a_mistake_in_what_applies_it_is_not_hidden(self, tmp_path: Path) -> None:
        def mistake(_: object) -> int:
            raise TypeError("a mistake")

        (tmp_path / "rules.yaml").write_text(policy_text())
        watcher = PolicyWatcher(PolicyFiles(tmp_path / "rules.yaml"), mistake)
        with pytest.raises(TypeError, match="a mistake"):
            watcher.check_now()


class TestHalfAFile:
    """`FileSource` reads a file again that has been written just now."""

    def source(self, file: Path, *texts: str) -> FileSource:
        """A source of *file*, which becomes one of *texts* at each pause."""
        left = list(texts)

        def pause(_: float) -> None:
            if left:
                file.write_text(left.pop(0))

        return FileSource(file, read_only=True, pause=pause, interval=SOON)

    def test_is_not_put_in_force_even_if_it_is_a_policy(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.yaml"
        half = policy_text(rule="first")
        file.write_text(half)
        whole = half + half[half.index("  - id") :].replace("first", "second")
        document = self.source(file, whole).head().document
        assert [rule["id"] for rule in document["rules"]] == ["first", "second"]

    def test_is_not_reported_as_bad(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.yaml"
        file.write_text("")
        assert self.source(file, policy_text()).head().number == 1

    def test_of_several_files_is_waited_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a", "b"):
            (tmp_path / f"{name}.yaml").write_text(policy_text(rule=f"old-{name}"))
        read, reads = PolicyFiles.read, 0

        def swapping(files: PolicyFiles) -> Texts:
            nonlocal reads
            texts = read(files)
            reads += 1
            if reads == 1:
                for name in ("a", "b"):
                    (tmp_path / f"{name}.yaml").write_text(policy_text(rule=f"new-{name}"))
            return texts

        monkeypatch.setattr(PolicyFiles, "read", swapping)
        document = self.source(tmp_path).head().document
        assert [rule["id"] for rule in document["rules"]] == ["new-a", "new-b"]

    def test_that_never_rests_is_read_in_the_end(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.yaml"
        file.write_text(policy_text())
        texts = [policy_text(rule=f"r{n}") for n in range(100)]
        assert self.source(file, *texts).head().number == 1

    def test_is_read_again_before_it_is_reported(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is bad once may be on its way to the disk, or away while an editor renames it."""
        head, looks = FileSource.head, 0

        def looked(source: FileSource) -> object:
            nonlocal looks
            looks += 1
            if looks == 2:
                raise InvalidFileError([Problem("error", "a file", "half")])
            return head(source)

        monkeypatch.setattr(FileSource, "head", looked)
        with watching(PolicyFiles(app.file), Applied(), interval=SOON) as watched:
            app.write(policy_text(rule="edited"))
            watched.until(lambda state: state.revision == 2)
            assert watched.state.failures == 0
            app.write(BAD)
            watched.until(lambda state: state.problems)


class TestThread:
    def test_it_notices_a_change_by_itself(self, app: App) -> None:
        states: queue.Queue[State] = queue.Queue()
        watcher = PolicyWatcher(
            PolicyFiles(app.file), Applied(), interval=SOON, on_change=states.put
        )
        with watcher:
            assert states.get().revision == 1
            app.write(policy_text(rule="new"))
            assert states.get(timeout=60).is_current

    def test_a_bad_file_does_not_keep_it_from_starting(self, app: App) -> None:
        app.write(BAD)
        with app.watcher:
            assert app.state.problems
            assert app.watcher.is_watching

    def test_it_is_woken_at_once(self, app: App) -> None:
        states: queue.Queue[State] = queue.Queue()
        watcher = PolicyWatcher(
            PolicyFiles(app.file), Applied(), interval=3600, on_change=states.put
        )
        with watcher:
            states.get()
            app.write(BAD)
            watcher.check_soon()
            assert states.get(timeout=60).problems

    def test_what_is_checked_already_is_read_by_the_thread(self, app: App) -> None:
        states: queue.Queue[State] = queue.Queue()
        watcher = PolicyWatcher(PolicyFiles(app.file), Applied(), on_change=states.put)
        watcher.start(is_checked=True)
        assert states.get(timeout=60).revision == 1
        watcher.stop()


class TestReports:
    @pytest.fixture(autouse=True)
    def _everything(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="headgate.control")

    def logged(self, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    def test_a_bad_file_is_reported_once_with_all_its_problems(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.clear()
        app.save(BAD)
        app.watcher.check_now()
        ((level, message),) = self.logged(caplog)
        assert level == "WARNING"
        assert app.state.problems is not None
        assert all(str(problem) in message for problem in app.state.problems)
        assert "revision 1 stays in force" in message
        assert len(app.states) == app.state.failures == 1

    def test_another_bad_content_is_reported_again(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.clear()
        for text in (BAD, BAD.replace("limitt", "limittt"), BAD):
            app.save(text)
        assert len(self.logged(caplog)) == app.state.failures == 3

    def test_a_file_that_is_good_again_is_reported(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        app.save(BAD)
        caplog.clear()
        app.save(policy_text())
        assert self.logged(caplog) == [("INFO", f"{app.file}: available again")]

    def test_a_new_policy_is_reported_with_its_revision(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.clear()
        app.save(policy_text(rule="new"))
        ((level, message),) = self.logged(caplog)
        assert (level, message.partition(" (")[0]) == (
            "INFO",
            f"{app.file}: revision 2 is in force",
        )

    def test_warnings_are_reported_and_kept(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.clear()
        state = app.save(WARNED)
        assert state.is_current
        assert state.warnings
        assert [level for level, _ in self.logged(caplog)] == ["INFO", "WARNING"]

    def test_warnings_about_what_was_loaded_before_are_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "rules.yaml").write_text(WARNED)
        app = App(tmp_path / "rules.yaml", is_loaded=True)
        assert app.state.warnings
        assert [level for level, _ in self.logged(caplog)] == ["WARNING"]

    def test_observers_see_every_change(self, app: App) -> None:
        for text in (BAD, policy_text(), policy_text(rule="new")):
            app.save(text)
        assert [(one.revision, one.problems is None) for one in app.states] == [
            (1, False),
            (1, True),
            (2, True),
        ]
