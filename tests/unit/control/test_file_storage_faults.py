"""Whatever fails while a revision is written, there is the old one or the new one."""

from __future__ import annotations

import errno
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.file_history import FileHistory
from headgate.control.file_source import FileSource
from headgate.control.revision import ControlError, ReadOnlyError, Revision, SourceError
from tests.support.policy_source_contract import revision

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = revision(1, "old"), revision(2, "new")


class Trouble:
    """Lets so many calls of the operating system pass, and fails the next one."""

    def __init__(self, passing: int, number: int = errno.ENOSPC) -> None:
        self.left = passing
        self.number = number
        self.is_over = False

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not self.is_over:
                if self.left == 0:
                    self.is_over = True
                    raise OSError(self.number, os.strerror(self.number))
                self.left -= 1
            return real(*arguments, **options)

        return call

    def come(self, patched: pytest.MonkeyPatch) -> None:
        for name in ("open", "write", "fsync"):
            patched.setattr(os, name, self.before(getattr(os, name)))
        for name in ("replace", "chmod"):
            patched.setattr(Path, name, self.before(getattr(Path, name)))


def committed(storage: FileSource) -> ControlError | None:
    try:
        storage.commit(NEW)
    except ControlError as error:
        return error
    return None


def begun(tmp_path: Path) -> FileSource:
    storage = FileSource(tmp_path / "policy.yaml", may_be_missing=True)
    storage.commit(OLD)
    return storage


def newest(tmp_path: Path) -> Revision:
    return FileSource(tmp_path / "policy.yaml").head()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_failure_at_any_step_leaves_the_old_or_the_new(tmp_path: Path, number: int) -> None:
    failures = {"old": 0, "new": 0}
    for passing in range(100):
        place = tmp_path / str(passing)
        place.mkdir()
        storage = begun(place)
        trouble = Trouble(passing, number)
        with pytest.MonkeyPatch.context() as patched:
            trouble.come(patched)
            error = committed(storage)
        if not trouble.is_over:
            break
        found = newest(place)
        if error is None:
            assert found == NEW  # what failed did not matter
            continue
        assert found in (OLD, NEW)
        if isinstance(error, ReadOnlyError):
            assert found == OLD  # that is what it promises
        failures["old" if found == OLD else "new"] += 1
        check_usable(place, found)
    assert failures["old"] > 5
    assert failures["new"] > 0


def check_usable(place: Path, found: Revision) -> None:
    """Nothing is left behind that the next change would stumble over."""
    storage = FileSource(place / "policy.yaml")
    following = revision(found.number + 1, "next")
    storage.commit(following)
    assert storage.head() == following
    names = {path.name for path in place.iterdir()}
    assert names == {"policy.yaml", "policy.yaml.history"}
    assert storage.at(1) == OLD


def test_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    storage = begun(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", Trouble(0).before(os.write))
        error = committed(storage)
    assert isinstance(error, SourceError)
    assert "No space left" in str(error)
    assert newest(tmp_path) == OLD


def test_a_file_that_is_mounted_by_itself_is_told_as_what_cannot_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, real = begun(tmp_path), Path.replace

    def replace(self: Path, target: Path) -> Path:
        if target.name == "policy.yaml":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    error = committed(storage)
    assert isinstance(error, ReadOnlyError)
    assert "mount its directory" in str(error)
    assert storage.head() == OLD


def test_threads_that_look_at_several_revisions_find_them_all(tmp_path: Path) -> None:
    storage = begun(tmp_path)
    storage.commit(NEW)
    history = FileHistory(tmp_path / "policy.yaml", most=10)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(history.at, [1, 2] * 2_000))
    finally:
        sys.setswitchinterval(interval)
    assert found == [OLD, NEW] * 2_000


def test_an_edit_by_hand_is_read_even_if_the_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = begun(tmp_path)
    file = tmp_path / "policy.yaml"
    file.write_text(file.read_text().replace("old", "edited"))
    os.utime(file, ns=(1, 1))
    with pytest.MonkeyPatch.context() as patched:
        trouble = Trouble(0)
        trouble.come(patched)
        found = storage.head()
    assert (found.number, found.versions) == (2, {"edited": 2})
    assert "the history cannot be written" in caplog.text
    assert newest(tmp_path).number == 2
