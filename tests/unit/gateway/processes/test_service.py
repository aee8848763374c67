"""A worker behind Envoy: its socket, and its health."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from headgate.config import Address
from headgate.config.service import Settings
from headgate.gateway.processes.run_directory import RunDirectory
from headgate.gateway.processes.service import SOCKET, EnvoyWorker, behind_envoy, envoy_sockets
from headgate.service.sockets import listen_as
from headgate.service.supervisor import WorkerProgram, Workers

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def _settings(directory: Path, workers: int) -> Settings:
    settings = Settings(
        rules="rules.yaml",
        store="redis://127.0.0.1:1",
        http=(),
        grpc=(Address("127.0.0.1", 0), SOCKET),
        grpc_ports="each",
        workers=workers,
    )
    return behind_envoy(settings, RunDirectory(directory))


def test_each_worker_has_a_socket_of_its_own_for_envoy(tmp_path: Path) -> None:
    settings = _settings(tmp_path, 3)
    first = f"{tmp_path}/grpc.sock"
    assert envoy_sockets(settings) == (first, f"{first}.1", f"{first}.2")
    sockets = listen_as(settings)
    try:
        assert [own[-1].address.path for own in sockets.grpc] == list(envoy_sockets(settings))
    finally:
        sockets.close()


def test_a_worker_dies_with_the_gateway(tmp_path: Path) -> None:
    sockets = listen_as(_settings(tmp_path, 1))
    with closing(Workers(_settings(tmp_path, 1), sockets, EnvoyWorker)) as workers:
        [program] = workers.programs
        call = list(program.call())
    sockets.close()
    assert str(os.getpid()) in call
    assert call[call.index("-m") + 1] == "headgate.service"
    assert call[0] == sys.executable


def test_a_worker_is_healthy_if_it_responds_on_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(tmp_path, 2)
    sockets = listen_as(settings)
    monkeypatch.setattr("headgate.gateway.processes.service._TIMEOUT_S", 0.05)

    async def is_connected(_: WorkerProgram) -> bool:
        return True

    monkeypatch.setattr(WorkerProgram, "is_healthy", is_connected)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readexactly(33)).startswith(b"PRI * HTTP/2.0")
        writer.write(bytes(9))
        writer.close()

    async def main() -> list[bool]:
        with closing(Workers(settings, sockets, EnvoyWorker)) as workers:
            async with await asyncio.start_unix_server(answer, sock=sockets.grpc[1][-1].sock):
                return [await one.is_healthy() for one in workers.programs]

    assert asyncio.run(main()) == [False, True]
    sockets.close()
