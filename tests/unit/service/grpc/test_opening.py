"""Which server is opened, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError
from headgate.service.grpc import GrpcLimits, TlsFiles, method, open_server
from headgate.service.grpc.grpcio_server import GrpcioServer
from headgate.service.grpc.h2_server.server import H2Server

if TYPE_CHECKING:
    from pathlib import Path


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def found(name: str) -> object:
        return None if name in missing else find_spec(name)

    monkeypatch.setattr(method, "find_spec", found)


def test_auto_is_the_lean_server_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_server("auto", {}, {}), H2Server)
    without(monkeypatch, "zttp")
    assert isinstance(open_server("auto", {}, {}), GrpcioServer)


def test_a_kind_is_what_it_says() -> None:
    assert isinstance(open_server("lean", {}, {}), H2Server)
    assert isinstance(open_server("grpcio", {}, {}), GrpcioServer)


@pytest.mark.parametrize(("kind", "package"), [("lean", "zttp"), ("grpcio", "grpc")])
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: Any, package: str
) -> None:
    without(monkeypatch, package)
    with pytest.raises(OptionError, match=rf"'{package}': pip install 'headgate\[service\]'"):
        open_server(kind, {}, {})


def test_an_unknown_kind_is_refused() -> None:
    kind: Any = "quick"
    with pytest.raises(OptionError, match="'auto', 'lean' or 'grpcio', not 'quick'"):
        open_server(kind, {}, {})


def test_a_path_is_of_one_method() -> None:
    methods: Any = {"/a.B/C": None}
    with pytest.raises(OptionError, match=r"/a\.B/C"):
        open_server("lean", methods, methods)


@pytest.mark.parametrize("kind", ["lean", "grpcio"])
def test_files_that_cannot_be_used_are_named(kind: Any, tmp_path: Path) -> None:
    files = TlsFiles(certificate=tmp_path / "no.crt", key=tmp_path / "no.key")
    with pytest.raises(OptionError, match=r"no\.crt"):
        open_server(kind, {}, {}, tls=files)


@pytest.mark.parametrize("name", ["message_bytes", "calls", "idle_s", "stall_s", "connections"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), True])
def test_limits_are_above_zero(name: str, value: float) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(OptionError, match=name):
        GrpcLimits(**given)


def test_a_connection_may_hold_a_message() -> None:
    with pytest.raises(OptionError, match="must hold one message"):
        GrpcLimits(message_bytes=11, connection_bytes=10)


def test_neither_package_is_imported_before_a_server_is_opened() -> None:
    code = "import sys, headgate.service.grpc; print({'grpc', 'zttp'} & sys.modules.keys())"
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout.strip() == "set()"
