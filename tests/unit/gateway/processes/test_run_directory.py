"""The directory of a run: of its owner only, of one gateway only, and gone afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headgate.gateway.processes.logs import GatewayError
from headgate.gateway.processes.run_directory import (
    PREFIX,
    RunDirectory,
    clear_abandoned,
    run_directory,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_one_of_its_own_is_private_and_gone_afterwards() -> None:
    with run_directory(None) as directory:
        path = directory.path
        secret = directory.write("a.secret", b"word")
        assert (path.stat().st_mode & 0o777, secret.stat().st_mode & 0o777) == (0o700, 0o600)
    assert not path.exists()


def test_it_is_gone_after_a_failure_too() -> None:
    with pytest.raises(RuntimeError), run_directory(None) as directory:
        raise RuntimeError
    assert not directory.path.exists()


def test_a_given_one_stays_with_the_rules_that_people_edit(tmp_path: Path) -> None:
    wanted = tmp_path / "run"
    for _ in range(2):
        with run_directory(str(wanted)) as directory:
            assert not directory.place("tls").exists()
            directory.write("bootstrap.json", b"{}")
            directory.write("tls/key.pem", b"key")
            directory.write("rules.yaml", b"rules")
        assert sorted(path.name for path in wanted.iterdir()) == ["lock", "rules.yaml"]


def test_only_one_gateway_has_it(tmp_path: Path) -> None:
    wanted = str(tmp_path / "run")
    with (
        run_directory(wanted),
        pytest.raises(GatewayError, match="another gateway uses it"),
        run_directory(wanted),
    ):
        pass


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with (
        pytest.raises(GatewayError, match="it contains other files"),
        run_directory(str(tmp_path)),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for wanted in (tmp_path / "file", tmp_path / "no" / "where"):
        with (
            pytest.raises(GatewayError, match=f"run_dir {wanted}: cannot use it"),
            run_directory(str(wanted)),
        ):
            pass


def test_a_path_that_sockets_cannot_have_is_told(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    with pytest.raises(GatewayError, match="107 bytes"), run_directory(str(long)):
        pass


def test_what_a_killed_gateway_has_left_is_cleared_away(tmp_path: Path) -> None:
    left, new, other = (tmp_path / f"{PREFIX}{name}" for name in ("left", "new", "other"))
    for path in (left, new, other):
        path.mkdir()
    for path in (left, new):
        (path / "lock").touch()
    os.utime(left / "lock", (0, 0))
    (left / "a.secret").touch()
    clear_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {new.name, other.name}


def test_a_given_one_is_made_private(tmp_path: Path) -> None:
    wanted = tmp_path / "run"
    wanted.mkdir()
    wanted.chmod(0o755)
    with run_directory(str(wanted)):
        assert wanted.stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_as_it_should_be_needs_no_room(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    inode = directory.write("a", b"same").stat().st_ino
    assert directory.write("a", b"same").stat().st_ino == inode
    assert directory.write("a", b"other").read_bytes() == b"other"
