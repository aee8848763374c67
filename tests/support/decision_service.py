"""`headgate serve` as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from headgate.cli import main
from tests.support.logs import restored_logs
from tests.support.servers import free_port, release_port, until, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

RULES = """\
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 5/hour}
"""
PLAIN = httpx.Client(
    verify=False,  # noqa: S501 - not for TLS: what authorities there are takes 50 ms to read
    trust_env=False,
    limits=httpx.Limits(max_keepalive_connections=0),
)
"""For HTTP without TLS, with a new connection for each request."""

CALL = (sys.executable, "-m", "headgate.cli", "serve")


class Service:
    """A service that runs. *port* is that of HTTP on 127.0.0.1, *grpc_port* the first of gRPC."""

    def __init__(self, process: Process, log: Path, port: int, grpc_port: int) -> None:
        self.process = process
        self._log = log
        self.port, self.grpc_port = port, grpc_port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def check(self, ip: str = "192.0.2.1", **more: Any) -> httpx.Response:
        """One check of a request from *ip*."""
        body = {"method": "GET", "path": "/", "ip": ip, **more}
        return PLAIN.post(f"{self.url}/v1/check", json=body)

    def statuses(self, count: int, ip: str = "192.0.2.1") -> list[int]:
        return [self.check(ip).status_code for _ in range(count)]

    def signal(self, which: signal.Signals) -> None:
        os.kill(self.process.pid, which)

    def stop(self) -> None:
        """Ask it to drain."""
        self.signal(signal.SIGTERM)

    def wait(self, within: float = 60.0) -> int:
        """Wait for the end; the exit status."""
        return self.process._popen.wait(within)

    def workers(self) -> list[int]:
        """The ids of the worker processes."""
        found = subprocess.run(  # noqa: S603 - the tests' own
            ["/usr/bin/env", "ps", "-o", "pid=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(pid) for pid in found.stdout.split()]

    def is_ready(self) -> bool:
        try:
            return PLAIN.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def serving(
    directory: Path,
    *flags: str,
    rules: str | None = RULES,
    grpc: int = 0,
    grpc_port: int = 0,
    http: str | None = None,
    is_awaited: bool = True,
    env: dict[str, str] | None = None,
    program: tuple[str, ...] = CALL,
) -> Iterator[Service]:
    """A service with *rules*, and gRPC for so many workers as *grpc* says (0: off); on *grpc_port*
    if that is given, which stays the caller's.

    What it says is in the file `log` of *directory*.
    """
    port = free_port()
    own_port = free_port() if grpc and not grpc_port else 0
    grpc_port = grpc_port or own_port
    call = [*("env", *(f"{key}={value}" for key, value in (env or {}).items())), *program]
    if rules is not None:
        (directory / "rules.yaml").write_text(rules, encoding="utf-8")
        call += ["--rules", str(directory / "rules.yaml")]
    call += ["--http", http or f"127.0.0.1:{port}"]
    if "--grpc" not in flags:
        call += ["--grpc", f"127.0.0.1:{grpc_port}" if grpc else "off"]
    if "--linger" not in flags:
        call += ["--linger", "0.05"]
    call += flags
    log = directory / "log"
    process = Process(call, log)
    service = Service(process, log, port, grpc_port)
    try:
        if is_awaited:
            wait_until(lambda: _serves(service), "the service is ready", within=60.0)
        yield service
    finally:
        process.terminate()
        release_port(port)
        if own_port:
            release_port(own_port)


def _serves(service: Service) -> bool:
    """Whether all of it does."""
    if not service.process.is_running:
        raise RuntimeError(f"the service has ended: {service.log}")
    return "serves with" in service.log and service.is_ready()


def refused(
    directory: Path,
    *flags: str,
    env: dict[str, str] | None = None,
    call: tuple[str, ...] = CALL,
) -> tuple[int, str]:
    """The exit status and stderr of a service that does not start, or of another *call*."""
    done = subprocess.run(  # noqa: S603 - the tests' own
        [*call, *flags],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    return done.returncode, done.stderr


def told(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """The same for `headgate serve` with *flags* in this process."""
    with restored_logs():
        status = main(["serve", *flags])
    return status, capsys.readouterr().err


async def load_until_gone(port: int, stop: Callable[[], None]) -> int:
    """Send requests from eight callers on kept connections until the port is closed.

    *stop* is called after half a second and 200 answers. Returns the number of answers. Raises if a
    request was sent and not answered. A connection that the kernel had queued when the service
    closed its socket never reached the service: a reset while it connects, or before its first
    answer, counts as closed.
    """
    answered = 0
    is_ending = False

    async def call() -> None:
        nonlocal answered
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                if not is_ending:
                    raise
                continue
            is_new = True
            try:
                is_kept = True
                while is_kept:
                    writer.write(b"GET /v1/authorize/a HTTP/1.1\r\nhost: x\r\n\r\n")
                    head = await reader.readuntil(b"\r\n\r\n")
                    is_new = False
                    assert head.startswith(b"HTTP/1.1 200 "), head
                    answered += 1
                    is_kept = b"connection: close" not in head
            except ConnectionResetError:
                if not (is_ending and is_new):
                    raise
            finally:
                writer.close()

    async def end() -> None:
        nonlocal is_ending
        await asyncio.sleep(0.5)
        await until(lambda: answered > 200)
        is_ending = True
        stop()

    async with asyncio.timeout(120):
        await asyncio.gather(end(), *(call() for _ in range(8)))
    return answered
