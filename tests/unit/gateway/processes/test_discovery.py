"""Envoy's files: only what has changed is replaced, in its order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headgate.gateway.envoy.values import Documents
from headgate.gateway.processes.logs import TemporaryError
from headgate.gateway.processes.run_directory import DiscoveryFiles, RunDirectory

if TYPE_CHECKING:
    from pathlib import Path


def test_only_what_has_changed_is_replaced_in_the_order_of_the_documents(tmp_path: Path) -> None:
    files = DiscoveryFiles(RunDirectory(tmp_path))
    first = {"filter-z.json": {"v": 1}, "filter-a.json": {"v": 1}, "listeners.json": {"v": 1}}
    names = ("bootstrap.json", "filter-z.json", "filter-a.json", "listeners.json")
    assert files.write(Documents({"node": 1}, first)) == names
    inode = (tmp_path / "filter-a.json").stat().st_ino
    assert files.write(Documents({"node": 1}, first)) == ()
    second = {**first, "filter-z.json": {"v": 2}, "listeners.json": {"v": 2}}
    assert files.write(Documents({"node": 1}, second)) == ("filter-z.json", "listeners.json")
    assert json.loads((tmp_path / "listeners.json").read_bytes()) == {"v": 2}
    assert (tmp_path / "filter-a.json").stat().st_ino == inode


def test_what_is_no_longer_needed_is_removed_when_the_rest_is_good(tmp_path: Path) -> None:
    files = DiscoveryFiles(RunDirectory(tmp_path))
    files.write(Documents({}, {"filter-a.json": {}, "listeners.json": {}}))
    without = Documents({}, {"listeners.json": {"v": 2}})
    files.write(without)
    assert (tmp_path / "filter-a.json").exists()
    files.settle(without)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bootstrap.json", "listeners.json"]
    again = Documents({}, {"filter-a.json": {}, "listeners.json": {"v": 2}})
    assert files.added(again) == 1
    assert files.write(again) == ("filter-a.json",)
    assert files.is_written(again)


def test_what_is_not_good_is_put_back(tmp_path: Path) -> None:
    files = DiscoveryFiles(RunDirectory(tmp_path))
    good = Documents({}, {"filter-a.json": {"v": 1}, "listeners.json": {"v": 1}})
    files.write(good)
    files.settle(good)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files.write(Documents({}, {"filter-b.json": {}, "listeners.json": {"v": 2}}))
    files.restore()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert files.is_written(good)


def test_what_cannot_be_written_changes_no_file(tmp_path: Path) -> None:
    files = DiscoveryFiles(RunDirectory(tmp_path))
    files.write(Documents({}, {"filter-a.json": {"v": 1}, "listeners.json": {"v": 1}}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    too_long = "x" * 300
    second = Documents({}, {"filter-a.json": {"v": 2}, too_long: {}, "listeners.json": {"v": 2}})
    with pytest.raises(TemporaryError, match="cannot write: File name too long"):
        files.write(second)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert not files.is_written(second)
