"""Whether an address is free, and who has it if not."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from headgate.config import Address
from headgate.gateway.processes.logs import GatewayError
from headgate.gateway.processes.preflight import check_free, reserve_ports
from headgate.service.sockets import holder_of

if TYPE_CHECKING:
    from pathlib import Path


def _check(address: Address) -> Address:
    (found,) = check_free((address,), option="--listen")
    return found


def test_a_port_that_is_taken_is_told_with_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        holder = holder_of(port)
        assert holder is not None
        assert holder.endswith(f"(pid {os.getpid()})")
        with pytest.raises(GatewayError, match=r"in use by .*; choose another with --listen"):
            _check(Address("127.0.0.1", port))


def test_a_port_that_another_envoy_would_share_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as shared:
        port = shared.getsockname()[1]
        with pytest.raises(GatewayError, match=r"(port \d+|the socket) is in use"):
            _check(Address("127.0.0.1", port))


def test_port_0_is_one_that_is_free() -> None:
    found = _check(Address("127.0.0.1", 0))
    assert found.port > 0
    assert _check(found) == found


def test_one_that_is_held_is_shared_by_nobody_who_looks() -> None:
    """Two gateways that are started at the same time must not share a port."""
    with ExitStack() as held:
        (found,) = reserve_ports((Address("127.0.0.1", 0),), option="--listen", held=held)
        with pytest.raises(GatewayError, match=r"(port \d+|the socket) is in use"):
            _check(found)
        # Envoy is somebody else: it asks to share
        place = "127.0.0.1", found.port
        with (
            socket.create_server(place, reuse_port=True) as envoy,
            socket.create_connection(place),
        ):
            envoy.accept()[0].close()
    assert _check(found) == found


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(GatewayError, match=r"cannot listen at 192.0.2.1:80: "):
        _check(Address("192.0.2.1", 80))


class TestSockets:
    def test_one_that_somebody_listens_at_is_taken(self, tmp_path: Path) -> None:
        path = tmp_path / "a.sock"
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
            sock.listen()
            with pytest.raises(GatewayError, match=r"(port \d+|the socket) is in use"):
                _check(Address(path=str(path)))
        assert _check(Address(path=str(path))).path == str(path)  # left by one that is gone

    def test_a_file_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(GatewayError, match="a file that is not a socket"):
            _check(Address(path=str(tmp_path / "a")))

    def test_a_directory_that_is_missing_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(GatewayError, match="is not a directory that this user can write to"):
            _check(Address(path=str(tmp_path / "none" / "a.sock")))
