"""Limits of a gRPC server, and what a server rejects when it is created."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError
from headgate.service.grpc.method import GrpcLimits
from headgate.service.grpc.server import GrpcServer
from headgate.service.tls import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path


def create(*arguments: Any, **options: Any) -> None:
    async def main() -> None:
        GrpcServer(*arguments, **options)

    asyncio.run(main())


def test_a_path_is_of_one_method() -> None:
    methods: Any = {"/a.B/C": None}
    with pytest.raises(OptionError, match=r"/a\.B/C"):
        create(methods, methods)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    files = TlsFiles(certificate=tmp_path / "no.crt", key=tmp_path / "no.key")
    with pytest.raises(OptionError, match=r"no\.crt"):
        create({}, {}, tls=files)


@pytest.mark.parametrize("name", ["message_bytes", "calls", "idle_s", "stall_s", "connections"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), True])
def test_limits_are_above_zero(name: str, value: float) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(OptionError, match=name):
        GrpcLimits(**options)


def test_a_connection_may_hold_a_message() -> None:
    with pytest.raises(OptionError, match="must hold one message"):
        GrpcLimits(message_bytes=11, connection_bytes=10)
