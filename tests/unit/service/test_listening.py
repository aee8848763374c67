"""Sockets: bound before anything is started, and told in one line if they cannot be."""

from __future__ import annotations

import socket
import stat
from typing import TYPE_CHECKING

import pytest

from headgate.config import Address
from headgate.config.service import Settings
from headgate.service.sockets import ListenError, listen, listen_as

if TYPE_CHECKING:
    from pathlib import Path

ANY = Address("127.0.0.1", 0)


def test_a_port_that_is_taken_is_told() -> None:
    first = listen(ANY, mode=0o660)
    try:
        said = rf"port {first.at.port} is in use by \S+ \(pid \d+\); choose another with --http"
        with pytest.raises(ListenError, match=f"cannot listen at {first.at}: {said}"):
            listen(first.at, mode=0o660, option="--http")
    finally:
        first.close()


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(ListenError, match=r"cannot listen at 192\.0\.2\.1:80"):
        listen(Address("192.0.2.1", 80), mode=0o660)


def test_a_unix_socket_has_its_permissions_and_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    listener = listen(Address(path=str(path)), mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.close()
    listener.remove()
    assert not path.exists()


def test_a_socket_that_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    listener = listen(Address(path=str(path)), mode=0o660)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listener.close()


def test_a_socket_in_use_and_a_file_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    listener = listen(Address(path=str(path)), mode=0o660)
    with pytest.raises(ListenError, match="in use"):
        listen(Address(path=str(path)), mode=0o660)
    listener.close()
    file = tmp_path / "data"
    file.write_text("precious")
    with pytest.raises(ListenError, match="not a socket"):
        listen(Address(path=str(file)), mode=0o660)
    assert file.read_text() == "precious"


def test_a_socket_that_somebody_else_has_put_there_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    listener = listen(Address(path=str(path)), mode=0o660)
    listener.close()
    other = listen(Address(path=str(path)), mode=0o660)
    listener.remove()
    assert path.exists() or other.inode == listener.inode
    other.close()


def test_nothing_is_left_listening_if_one_of_several_cannot(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    taken = listen(ANY, mode=0o660)
    settings = Settings(rules="x", http=(Address(path=str(path)), taken.at), grpc=())
    with pytest.raises(ListenError):
        listen_as(settings)
    assert not path.exists()
    taken.close()


def test_workers_share_a_socket_or_have_one_each(tmp_path: Path) -> None:
    shared = Settings(rules="x", http=(ANY,), grpc=(ANY,), workers=3, store="redis://x")
    listeners = listen_as(shared)
    assert len(listeners.all) == 2
    assert len({one.sock for own in listeners.grpc for one in own}) == 1
    listeners.close()
    address = Address(path=str(tmp_path / "g"))
    each = Settings(
        rules="x", http=(ANY,), grpc=(address,), workers=3, store="redis://x", grpc_ports="each"
    )
    listeners = listen_as(each)
    assert [own[0].at.path.rpartition("/")[2] for own in listeners.grpc] == ["g", "g.1", "g.2"]
    listeners.close()
    listeners.remove()
    assert not list(tmp_path.iterdir())
