"""The service as a program: its settings, its secrets, and its surroundings."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from headgate.config import Address
from headgate.gateway.processes.options import ServiceOptions
from headgate.gateway.processes.run_directory import RunDirectory
from headgate.gateway.processes.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def _options(workers: int = 1, **config: object) -> ServiceOptions:
    return ServiceOptions(
        config={"store": "memory://", **config},
        secrets={"admin_token": b"a token that ends\r"},
        http=(Address("127.0.0.1", 8090),),
        grpc=(Address("127.0.0.1", 8091),),
        workers=workers,
        linger=0.5,
        drain=20.0,
    )


def _written(service: Service, directory: Path) -> dict[str, object]:
    service.begin()
    written: dict[str, object] = json.loads((directory / "service.json").read_bytes())
    return written


def test_its_file_has_all_settings_and_where_the_secrets_are(tmp_path: Path) -> None:
    service = Service(_options(log_level="error"), "rules.yaml", RunDirectory(tmp_path))
    assert _written(service, tmp_path) == {
        "store": "memory://",
        "rules": "rules.yaml",
        "grpc": ["127.0.0.1:8091", f"unix:{tmp_path}/grpc.sock"],
        "log_format": "json",
        "log_level": "info",
        "admin_token_file": f"{tmp_path}/admin_token.secret",
    }
    assert (tmp_path / "admin_token.secret").read_bytes() == b"a token that ends\r\r\n"
    assert service.sockets == (f"{tmp_path}/grpc.sock",)


def test_each_worker_has_a_socket_of_its_own(tmp_path: Path) -> None:
    service = Service(_options(3, log_level="debug"), "rules.yaml", RunDirectory(tmp_path))
    written = _written(service, tmp_path)
    assert (written["grpc_ports"], written["log_level"]) == ("each", "debug")
    first = f"{tmp_path}/grpc.sock"
    assert service.sockets == (first, f"{first}.1", f"{first}.2")


def test_no_setting_of_ours_reaches_it_as_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_STORE", "redis://elsewhere")
    monkeypatch.setenv("HEADGATE_ETCD_PASSWORD", "word")
    given = Service(_options(), "rules.yaml", RunDirectory(tmp_path)).environment()
    ours = {key: value for key, value in given.items() if key.startswith("HEADGATE_")}
    assert ours == {"HEADGATE_ETCD_PASSWORD": "word"}
    assert "PATH" in given


def test_it_answers_if_a_worker_does_and_none_is_silent_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(_options(2), "rules.yaml", RunDirectory(tmp_path))

    async def settings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readexactly(33)).startswith(b"PRI * HTTP/2.0")
        writer.write(bytes(9))
        writer.close()

    async def main() -> list[bool]:
        found = [await service.is_healthy()]
        async with await asyncio.start_unix_server(settings, service.sockets[0]):
            found.append(await service.is_healthy())
            monkeypatch.setattr("headgate.gateway.processes.service._SILENCE_S", 0.0)
            found.append(await service.is_healthy())
            async with await asyncio.start_unix_server(settings, service.sockets[1]):
                found.append(await service.is_healthy())
        return found

    assert asyncio.run(main()) == [False, True, False, True]


def test_it_serves_when_it_has_said_so(tmp_path: Path) -> None:
    service = Service(_options(), "rules.yaml", RunDirectory(tmp_path))

    async def main() -> list[bool]:
        before = await service.is_ready()
        service.log.read_line('{"event": "started", "message": "headgate serves"}')
        return [before, await service.is_ready()]

    assert asyncio.run(main()) == [False, True]
