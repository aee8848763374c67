"""`headgate serve` as a process whose clock stands still until it is set.

It is started by the command line alone and spoken to over HTTP and gRPC, so it depends on no module
of Headgate.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import httpx

from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MANUAL_TIME = Path(__file__).parent / "manual_time"
_SECOND_NS = 10**9

START = datetime(2030, 1, 1, 10, 20, 30, 400_000, tzinfo=UTC)
"""When a service starts, on its own clock: later than any file that it reads was written, and on no
boundary of a second, a minute or an hour."""
_START_NS = int(START.timestamp() * 10) * (_SECOND_NS // 10)
_WRITTEN_NS = _START_NS - 3600 * _SECOND_NS
"""When its files were written."""


class ServiceProcess:
    """A running service. *http* sends requests to it, *channel* is for gRPC."""

    def __init__(self, process: Process, directory: Path, port: int, grpc_port: int) -> None:
        self._process = process
        self._log = directory / "log"
        self._time = directory / "time"
        self.directory = directory
        self.port, self.grpc_port = port, grpc_port
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            verify=False,  # noqa: S501 - no TLS is spoken; authorities take long to read
            trust_env=False,
            headers={},
            timeout=30.0,
        )
        for name in ("accept", "accept-encoding", "user-agent"):
            del self.http.headers[name]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")

    @property
    def log(self) -> str:
        """All that the service printed."""
        return self._log.read_text(encoding="utf-8")

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def now_ns(self) -> int:
        """The time on the clock of the service."""
        return int.from_bytes(self._time.read_bytes(), "little")

    def set_time(self, seconds: float) -> None:
        """Set the clock of the service to *seconds* after `START`."""
        _write_time(self._time, seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass for the service."""
        _write_time(self._time, (self.now_ns - _START_NS) / _SECOND_NS + seconds)

    def call(self, method: str, message: bytes) -> bytes:
        """The reply to a unary gRPC call. Raises `grpc.RpcError`."""
        asking: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(method)
        return asking(message, timeout=30, wait_for_ready=True)

    def close(self) -> None:
        """Close the connections to the service."""
        self.http.close()
        self.channel.close()


@contextmanager
def service_process(
    directory: Path,
    *flags: str,
    files: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    has_store: bool = True,
) -> Iterator[ServiceProcess]:
    """Run `headgate serve` with *flags* in *directory*, which holds *files*, until the end.

    It is ready at the beginning; or alive, where it never becomes ready for want of a store.

    Flags name files relative to the directory. HTTP and gRPC are on free ports of 127.0.0.1.
    """
    for name, text in (files or {}).items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(_WRITTEN_NS, _WRITTEN_NS))
    _write_time(directory / "time", 0)
    port, grpc_port = free_port(), free_port()
    program = Path(sys.executable).with_name("headgate")
    call = [
        *("env", "--chdir", str(directory)),
        *(f"--unset={name}" for name in os.environ if name.startswith("HEADGATE_")),
        *(f"{name}={value}" for name, value in _environment(directory, env or {}).items()),
        *(str(program), "serve", "--http", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{grpc_port}"),
        *("--linger", "0", *flags),
    ]
    process = Process(call, directory / "log")
    service = ServiceProcess(process, directory, port, grpc_port)
    try:
        path = "/readyz" if has_store else "/healthz"
        wait_until(lambda: _answers(service, path), f"{path} is good", within=100.0)
        yield service
    finally:
        service.close()
        process.terminate()
        release_port(port)
        release_port(grpc_port)


def _environment(directory: Path, more: Mapping[str, str]) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(_MANUAL_TIME), *_inherited("PYTHONPATH")]),
        "MANUAL_TIME_FILE": str(directory / "time"),
        "HEADGATE_SALT": "a salt of the golden tests",
        "HEADGATE_SECRET": "a secret of the golden tests",
        **more,
    }


def _inherited(name: str) -> list[str]:
    return [os.environ[name]] if os.environ.get(name) else []


def _answers(service: ServiceProcess, path: str) -> bool:
    if not service.is_running:
        raise RuntimeError(f"the service has ended: {service.log}")
    try:
        return service.http.get(path).status_code == 200
    except httpx.TransportError:
        return False


def _write_time(path: Path, seconds: float) -> None:
    now_ns = _START_NS + round(seconds * _SECOND_NS)
    if not path.exists():
        path.write_bytes(bytes(8))
    with path.open("r+b") as file:  # in place, for the service has it mapped
        file.write(now_ns.to_bytes(8, "little"))
