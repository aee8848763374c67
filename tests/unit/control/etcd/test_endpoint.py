"""The files of TLS are read when a storage is opened, and said to be wrong then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.control.etcd import EtcdSource
from headgate.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"ca=.*ca\.pem cannot be read: No such file"):
        EtcdSource.open(f"etcds://host?ca={tmp_path}/ca.pem")


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(OptionError, match=r"ca=.*ca\.pem is not a PEM file"):
        EtcdSource.open(f"etcds://host?ca={tmp_path}/ca.pem")


def test_opening_connects_to_nothing() -> None:
    storage = EtcdSource.open("etcd://nowhere.invalid:1/teams/a")
    assert storage.place == "etcd://nowhere.invalid:1/teams/a/"


def test_the_environment_of_the_process_may_have_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADGATE_ETCD_PASSWORD", "xyzzy")
    assert EtcdSource.open("etcd://ada@host")._url.password == "xyzzy"  # noqa: S105
    with pytest.raises(OptionError, match="set HEADGATE_ETCD_PASSWORD"):
        EtcdSource.open("etcd://ada@host", environ={})
