"""Limits of a gRPC server, and what a server rejects when it is created."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError
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
        files.context("h2")
