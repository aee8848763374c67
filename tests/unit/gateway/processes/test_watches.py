"""How many files Envoy may watch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.gateway.processes.configuration import check_watches
from headgate.gateway.processes.logs import TemporaryError


def _open() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - they are only counted


def test_what_there_is_is_given_back() -> None:
    before = _open()
    check_watches(2)
    assert _open() == before


def test_more_than_there_are_is_told_with_what_to_raise() -> None:
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text("ascii"))
    if most > 10_000:  # so many descriptors nobody has
        return
    before = _open()
    with pytest.raises(TemporaryError, match=r"raise fs\.inotify\.max_user_instances"):
        check_watches(most + 1)
    assert _open() == before
