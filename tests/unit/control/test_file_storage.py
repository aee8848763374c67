"""A policy file as a storage: what people do to it by hand, and what may not be written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control import file_source
from headgate.control.documents import parse_document
from headgate.control.file_source import FileSource, InvalidFileError
from headgate.control.revision import (
    Change,
    ConflictError,
    ReadOnlyError,
    Revision,
    UnknownRevisionError,
)
from headgate.control.yaml_text import edited_text
from tests.support.policy_files import BAD, policy_text, save
from tests.support.policy_source_contract import SOON, following, in_thread, revision

if TYPE_CHECKING:
    from pathlib import Path


def edit(file: Path, text: str) -> None:
    """Write by hand, a while ago: nobody is at it any more."""
    file.write_text(text)
    os.utime(file, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000 + len(text)))


def no_pause(_: float) -> None:
    raise AssertionError("nobody is writing the file")


def storage_of(file: Path, **options: Any) -> FileSource:
    return FileSource(file, pause=no_pause, **options)


def head(file: Path, **options: Any) -> Revision:
    return storage_of(file, **options).head()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    edit(file, policy_text())
    return file


def history_of(file: Path) -> list[str]:
    return sorted(path.name for path in file.with_name("policy.yaml.history").iterdir())


def test_a_file_is_the_first_revision_of_the_author_file(file: Path) -> None:
    newest = head(file)
    assert (newest.number, newest.versions) == (1, {"login": 1})
    assert newest.change == Change("file", file.stat().st_mtime_ns, "import the file")


def test_an_edit_by_hand_is_a_revision_and_says_what_it_changed(file: Path) -> None:
    head(file)
    edit(file, policy_text("6/minute") + "  - {id: api, key_by: ip, limit: 1/s}\n")
    newest = head(file)
    assert (newest.number, newest.versions) == (2, {"login": 2, "api": 2})
    assert newest.change.what == "edit the file: added api; changed login"


def test_a_touch_or_another_comment_is_noticed_only_if_the_text_is_another(file: Path) -> None:
    head(file)
    os.utime(file, ns=(1, 1))
    assert head(file).number == 1
    edit(file, "# why\n" + policy_text())
    newest = head(file)
    assert (newest.number, newest.versions) == (2, {"login": 1})


def test_an_edit_while_nobody_looks_is_found_later_and_numbered_on(file: Path) -> None:
    def main() -> None:
        storage_of(file).commit(revision(2, "a"))

    head(file)
    main()
    edit(file, policy_text("7/minute"))
    assert head(file).number == 3


def test_a_change_keeps_comments_and_the_text_before_is_in_the_history(file: Path) -> None:
    edit(file, "# precious\n" + policy_text())

    storage = storage_of(file)
    storage.head()
    storage.commit(revision(2, "a"))
    assert file.read_text().startswith("# precious\n")
    kept = json.loads((file.with_name("policy.yaml.history") / "1.json").read_text())
    assert kept["text"].startswith("# precious\n")


def test_the_file_is_replaced_and_never_rewritten_in_place(file: Path, tmp_path: Path) -> None:
    reading = tmp_path / "reading"  # what somebody has open who has not read all of it yet
    reading.hardlink_to(file)
    storage_of(file).commit(revision(2, "a"))
    assert reading.read_text() == policy_text()


def test_a_change_keeps_the_permissions_of_the_file(file: Path) -> None:
    file.chmod(0o640)
    storage_of(file).commit(revision(2, "a"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_the_file_can_be_read_while_the_text_of_a_change_is_made(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = head(file)
    read: list[Revision] = []

    def slow(*given: Any) -> bytes:
        read.append(head(file))
        return edited_text(*given)

    monkeypatch.setattr(file_source, "edited_text", slow)
    storage_of(file).commit(revision(2, "a"))
    assert read == [before]
    assert head(file).number == 2


def test_an_edit_by_hand_while_the_text_of_a_change_is_made_is_kept(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head(file)
    by_hand = policy_text("6/minute")

    def slow(*_: Any) -> bytes:
        edit(file, by_hand)
        return b"not written"

    monkeypatch.setattr(file_source, "edited_text", slow)
    with pytest.raises(ConflictError, match="at revision 2"):
        storage_of(file).commit(revision(2, "a"))
    assert file.read_text() == by_hand


def test_a_change_leaves_the_file_to_its_owner(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    storage_of(file).commit(revision(2, "a"))
    assert given == [(file.stat().st_uid, file.stat().st_gid)]


def test_the_history_is_for_its_owner_only(file: Path) -> None:
    head(file)
    directory = file.with_name("policy.yaml.history")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "1.json").stat().st_mode) == 0o600


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    storage_of(link).commit(revision(2, "a"))
    assert link.is_symlink()
    assert "id: a" in file.read_text()


def test_only_the_newest_revisions_are_kept(file: Path) -> None:
    storage = storage_of(file, most=3)
    for number in range(2, 8):
        storage.commit(revision(number, f"r{number}"))
    assert [number for number, _ in storage.history()] == [7, 6, 5]
    with pytest.raises(UnknownRevisionError):
        storage.at(4)
    assert history_of(file) == ["5.json", "6.json", "7.json", "lock"]


def test_a_file_that_is_no_policy_is_told_and_the_history_is_as_before(file: Path) -> None:
    head(file)
    edit(file, BAD)
    with pytest.raises(InvalidFileError, match="did you mean 'limit'") as caught:
        head(file)
    assert {problem.rule for problem in caught.value.problems} == {"login"}
    assert history_of(file) == ["1.json", "lock"]


def test_a_file_that_is_no_policy_is_not_read_again_until_it_is_changed(
    file: Path,
) -> None:
    read: list[object] = []

    def reading(texts: Any) -> Any:
        read.append(texts)
        return parse_document(texts)

    storage = storage_of(file, parse=reading)
    edit(file, BAD)
    for _ in range(3):
        with pytest.raises(InvalidFileError, match="did you mean 'limit'"):
            storage.head()
    assert len(read) == 1
    edit(file, policy_text("6/minute"))
    assert storage.head().number == 1


def test_a_file_that_could_not_be_read_is_tried_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_of(file, read_only=True)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", fail)
        with pytest.raises(InvalidFileError, match="cannot be read: Input/output error"):
            storage.head()
    assert storage.head().number == 1


def test_what_somebody_is_writing_by_hand_is_not_overwritten(file: Path) -> None:
    head(file)
    edit(file, BAD)
    with pytest.raises(ReadOnlyError, match="Fix it first"):
        storage_of(file).commit(revision(2, "a"))
    assert file.read_text() == BAD


def test_a_file_that_was_edited_meanwhile_is_not_overwritten(file: Path) -> None:
    head(file)
    edit(file, policy_text("6/minute"))
    with pytest.raises(ConflictError, match="revision 2"):
        storage_of(file).commit(revision(2, "a"))
    assert file.read_text() == policy_text("6/minute")


@pytest.mark.parametrize("text", [policy_text("6/minute"), BAD])
def test_an_edit_at_the_last_moment_is_not_overwritten(
    file: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    head(file)
    monkeypatch.setattr(file_source, "clear_leftovers", lambda _: edit(file, text))
    with pytest.raises(ConflictError, match="by hand in the meantime"):
        storage_of(file).commit(revision(2, "a"))
    assert file.read_text() == text
    assert history_of(file) == ["1.json", "lock"]
    assert not list(file.parent.glob(".*.new"))


def test_a_file_that_is_being_written_is_waited_for(file: Path) -> None:
    head(file)
    file.write_text("version: 1\nrules:\n")  # a policy, but half of one
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            file.write_text(policy_text("6/minute"))

    newest = FileSource(file, pause=pause).head()
    assert (newest.number, newest.document["rules"][0]["limit"]) == (2, "6/minute")
    assert len(pauses) == 2


def test_a_file_that_is_missing_is_an_error_unless_it_may_be(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    with pytest.raises(InvalidFileError, match="no such file"):
        head(file)
    assert head(file, may_be_missing=True).number == 0
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_there_may_not_go_missing(file: Path) -> None:
    head(file)
    file.unlink()
    with pytest.raises(InvalidFileError, match="no such file"):
        head(file, may_be_missing=True)


def test_opened_for_reading_nothing_is_written(file: Path, tmp_path: Path) -> None:
    storage = storage_of(file, read_only=True)

    assert (storage.head()).number == 1
    edit(file, policy_text("6/minute"))
    assert (storage.head()).number == 2
    assert [number for number, _ in storage.history()] == [2]
    with pytest.raises(ReadOnlyError, match="opened for reading only"):
        storage.commit(revision(3, "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["policy.yaml"]


def test_a_reader_has_the_numbers_of_a_writer_beside_it(file: Path) -> None:
    writer, reader = storage_of(file), storage_of(file, read_only=True)
    writer.head()
    writer.commit(revision(2, "a"))
    assert reader.head() == revision(2, "a")


def test_a_file_without_permission_to_write_can_be_read_and_not_changed(file: Path) -> None:
    file.chmod(0o444)
    assert head(file).number == 1
    assert not file.with_name("policy.yaml.history").exists()
    with pytest.raises(ReadOnlyError, match="read-only"):
        storage_of(file).commit(revision(2, "a"))
    assert file.read_text() == policy_text()


def test_a_history_that_somebody_removed_begins_anew(file: Path) -> None:
    storage = storage_of(file)
    storage.commit(revision(2, "a"))
    os.utime(file, ns=(1, 1))
    assert (storage.head()).number == 2
    shutil.rmtree(file.with_name("policy.yaml.history"))
    with pytest.raises(ConflictError, match="at revision 1"):
        storage.commit(revision(3, "b"))
    assert (storage.head()).number == 1
    storage.commit(revision(2, "b"))


def test_a_directory_of_files_can_be_read_and_not_changed(tmp_path: Path) -> None:
    directory = tmp_path / "rules.d"
    directory.mkdir()
    edit(directory / "1.yaml", policy_text(rule="one"))
    edit(directory / "2.yaml", policy_text(rule="two"))
    newest = head(directory)
    assert [rule["id"] for rule in newest.document["rules"]] == ["one", "two"]
    with pytest.raises(ReadOnlyError, match="a directory of files"):
        storage_of(directory).commit(revision(2, "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["rules.d"]


def test_a_file_in_json_is_written_in_json(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    FileSource(file, may_be_missing=True).commit(revision(1, "a"))
    assert json.loads(file.read_text()) == dict(revision(1, "a").document)


def test_a_damaged_history_costs_the_old_revisions_and_no_more(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head(file)
    (file.with_name("policy.yaml.history") / "1.json").write_text("{half")
    newest = head(file)
    assert (newest.number, newest.versions) == (2, {"login": 2})
    assert "1.json: not a revision, ignored" in caplog.text


def test_a_watch_sees_an_edit_by_hand(file: Path) -> None:
    storage = FileSource(file, interval=0.001, pause=lambda _: None)
    assert following(storage, 1).number == 1
    with in_thread(following, storage, 2) as watching:
        save(file, policy_text("6/minute"))
        assert watching.result(SOON).versions == {"login": 2}


def test_a_watch_reports_a_file_that_stays_invalid(file: Path) -> None:
    storage = FileSource(file, interval=0.001, pause=lambda _: None)
    newest = storage.head()
    edit(file, BAD)
    with pytest.raises(InvalidFileError):
        storage.wait(newest, SOON)
