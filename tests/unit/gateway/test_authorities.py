"""Where this machine keeps the authorities that it believes."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import headgate.gateway.processes.up as looked
from headgate.gateway.processes.up import system_authorities

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_file_of_openssl_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.pem"
    file.touch()
    monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, str(file))
    assert system_authorities() == str(file)


def test_then_the_places_of_the_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bundle.pem"
    variable = ssl.get_default_verify_paths().openssl_cafile_env
    monkeypatch.setenv(variable, str(tmp_path / "missing.pem"))
    monkeypatch.setattr(looked, "_KNOWN", (str(tmp_path / "other.pem"), str(file)))
    assert system_authorities() is None
    file.touch()
    assert system_authorities() == str(file)
