"""What is read of a path, and what is refused, with a word on why."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from headgate.control import PolicyFiles
from headgate.control.files import MOST_FILES
from headgate.errors import OptionError
from headgate.policy.document import MAX_BYTES
from headgate.policy.problems import PolicyError
from tests.support.policy_files import BAD, WARNED, policy_text

if TYPE_CHECKING:
    from collections.abc import Iterator


def rules_of(path: Path) -> list[str]:
    return [rule.id for rule in PolicyFiles(path).load().policy.rules]


def complaint(path: Path) -> str:
    with pytest.raises(PolicyError) as caught:
        PolicyFiles(path).load()
    return str(caught.value)


def test_a_file_is_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "any-name"
    file.write_text(policy_text())
    assert rules_of(file) == ["login"]


def test_the_files_of_a_directory_are_one_policy_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "20.yml").write_text(policy_text(rule="second"))
    (tmp_path / "10.yaml").write_text(policy_text(rule="first"))
    (tmp_path / "30.JSON").write_text(policy_text(rule="third"))
    (tmp_path / "README.md").write_text("not a policy")
    assert rules_of(tmp_path) == ["first", "second", "third"]


@pytest.mark.parametrize(
    "name",
    [
        ".rules.yaml",
        ".rules.yaml.swp",
        ".#rules.yaml",
        "#rules.yaml#",
        "#rules.yaml",
        "~rules.yaml",
        "rules.yaml~",
        "rules.yaml.bak",
        "rules.yaml.tmp",
        "4913",
    ],
)
def test_what_is_hidden_or_left_by_an_editor_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "rules.yaml").write_text(policy_text())
    (tmp_path / name).write_text("neither: read nor looked at")
    files = PolicyFiles(tmp_path)
    before = files.stamp()
    (tmp_path / name).write_text("changed")
    assert rules_of(tmp_path) == ["login"]
    assert files.stamp() == before


def test_the_problems_of_a_file_name_it_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(policy_text(rule="fine"))
    (tmp_path / "b.yaml").write_text(BAD)
    assert f"{tmp_path / 'b.yaml'}:4:" in complaint(tmp_path)


def test_warnings_come_with_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(WARNED)
    (warning,) = PolicyFiles(file).load().warnings
    assert warning.severity == "warning"


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone.yaml"
    assert complaint(gone) == f"{gone}: error: there is no such file or directory"


def test_a_directory_without_policies_is_told(tmp_path: Path) -> None:
    assert "no policy files in this directory; expected files whose names" in complaint(tmp_path)


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    (tmp_path / "b.yaml").write_text(policy_text())
    (tmp_path / "c.yaml").symlink_to(tmp_path / "nowhere")
    first, second = complaint(tmp_path).splitlines()
    assert first.endswith("a.yaml: error: this is a directory; expected a regular file")
    assert second.endswith("c.yaml: error: a link to nothing")


def test_a_circle_of_links_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "b.yaml")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "a.yaml")
    assert "cannot be read: Too many levels" in complaint(tmp_path / "a.yaml")


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rules.yaml")
    assert "this is a FIFO; expected a regular file" in complaint(tmp_path / "rules.yaml")
    assert "this is a FIFO" in complaint(tmp_path)


def test_a_fifo_that_took_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = tmp_path / "regular"
    regular.write_text(policy_text())
    os.mkfifo(tmp_path / "rules.yaml")
    found = regular.stat()
    monkeypatch.setattr("pathlib.Path.stat", lambda _: found)
    assert "this is a FIFO" in complaint(tmp_path / "rules.yaml")


def test_a_device_or_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    assert "this is a device" in complaint(tmp_path / "zero.yaml")
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.yaml")
        assert "this is a socket" in complaint(tmp_path / "s.yaml")


def test_a_file_is_read_up_to_a_size_and_refused_unread_above(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    text = policy_text()
    file.write_text(text + "#" * (MAX_BYTES - len(text)))
    assert rules_of(file) == ["login"]
    with file.open("a") as more:
        more.write("#")
    assert "too large; at most 1048576 bytes (1 MiB)" in complaint(file)
    os.truncate(file, 1 << 40)
    assert "too large" in complaint(file)


def test_a_file_without_a_size_is_not_read_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rules.yaml"
    file.touch()
    empty = file.stat()
    file.write_bytes(b"#" * (MAX_BYTES + 10))
    monkeypatch.setattr("pathlib.Path.stat", lambda _: empty)
    monkeypatch.setattr("os.fstat", lambda _: empty)
    with pytest.raises(PolicyError, match="too large"):
        PolicyFiles(file).read()


def test_so_many_files_are_read_and_no_more(tmp_path: Path) -> None:
    for number in range(MOST_FILES):
        (tmp_path / f"{number:03}.yaml").write_text(policy_text(rule=f"r{number}"))
    assert len(rules_of(tmp_path)) == MOST_FILES
    (tmp_path / "one-more.yaml").touch()
    assert "101 policy files in this directory; at most 100 are read" in complaint(tmp_path)


def test_what_is_not_utf8_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(policy_text().encode() + b"# caf\xe9\n")
    assert "6:6: error: not UTF-8" in complaint(file)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Do without the rights of root, to whom nothing is forbidden."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_told() -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        inside = Path(folder) / "inside"
        inside.mkdir()
        file = inside / "rules.yaml"
        file.write_text(policy_text())
        file.chmod(0)
        with as_nobody():
            told = complaint(inside)
        assert told.endswith("rules.yaml: error: cannot be read: Permission denied")
        inside.chmod(0)
        with as_nobody():
            told = complaint(inside)
        assert told.endswith("inside: error: cannot be read: Permission denied")
        inside.chmod(0o700)


def test_an_error_of_the_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(policy_text())

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.open", fail)
    assert complaint(file) == f"{file}: error: cannot be read: Input/output error"


def test_a_directory_that_vanishes_while_it_is_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("pathlib.Path.iterdir", vanish)
    assert "there is no such file or directory" in complaint(tmp_path)


def test_a_name_that_is_no_text_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.yaml")).write_text(BAD)
    assert "\\xff.yaml:4:" in complaint(tmp_path)
    complaint(tmp_path).encode()


def test_a_path_with_a_nul_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="NUL"):
        PolicyFiles("rules\0.yaml")


def test_the_fingerprint_is_that_of_names_and_content_alone(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir()
        (directory / "rules.yaml").write_text(policy_text())
    first = PolicyFiles(here).load().fingerprint
    assert PolicyFiles(there).load().fingerprint == first
    (there / "rules.yaml").rename(there / "others.yaml")
    assert PolicyFiles(there).load().fingerprint != first


class TestStamp:
    def test_it_is_the_same_while_nothing_happens(self, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(policy_text())
        files = PolicyFiles(tmp_path)
        assert files.stamp() == files.stamp()

    def test_it_tells_a_file_from_one_of_the_same_size_and_time(self, tmp_path: Path) -> None:
        file, other = tmp_path / "rules.yaml", tmp_path / "other"
        for number, path in enumerate((file, other)):
            path.write_text(policy_text(f"{number + 1}/minute"))
            os.utime(path, ns=(0, 0))
        files = PolicyFiles(file)
        before = files.stamp()
        other.replace(file)
        assert files.stamp() != before

    def test_it_tells_that_a_file_came_went_or_was_renamed(self, tmp_path: Path) -> None:
        files = PolicyFiles(tmp_path)
        seen = {files.stamp()}
        (tmp_path / "a.yaml").touch()
        seen.add(files.stamp())
        (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
        seen.add(files.stamp())
        (tmp_path / "a.yaml").touch()
        seen.add(files.stamp())
        assert len(seen) == 4

    def test_it_tells_that_a_link_leads_elsewhere(self, tmp_path: Path) -> None:
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "rules.yaml").write_text(policy_text())
        link = tmp_path / "link"
        link.symlink_to("old")
        through_a_link, of_a_file = PolicyFiles(link), PolicyFiles(link / "rules.yaml")
        before = through_a_link.stamp(), of_a_file.stamp()
        (tmp_path / "fresh").symlink_to("new")
        (tmp_path / "fresh").replace(link)
        assert through_a_link.stamp() != before[0]
        assert of_a_file.stamp() != before[1]

    def test_it_never_raises(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").symlink_to(tmp_path / "nowhere")
        assert PolicyFiles(tmp_path).stamp()
        assert PolicyFiles(tmp_path / "nowhere").stamp()
