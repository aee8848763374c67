"""`headgate up` as a process of its own, and an upstream to stand behind it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.support.decision_service import PLAIN
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.process import Process
from tests.support.servers.upstream import QuietHandler, upstream_of

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from pathlib import Path

RULES = """\
version: 1
rules:
  - {id: per-key, match: {endpoint: /limited/**}, key_by: api_key, limit: 5/hour}
"""
TOKEN = "a-token-for-the-tests"  # noqa: S105 - it opens nothing else
CALL = (sys.executable, "-m", "headgate.cli", "up")


class Gateway:
    """A gateway that runs: *url* is where clients ask, *service_url* the service's HTTP."""

    def __init__(self, process: Process, log: Path, port: int, service_port: int) -> None:
        self.process = process
        self._log = log
        self.port, self.service_port = port, service_port
        self.url = f"http://127.0.0.1:{port}"
        self.service_url = f"http://127.0.0.1:{service_port}"
        self.admin_token = TOKEN

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def envoy_pid(self) -> int:
        """Of the Envoy that runs now."""
        return self._child("envoy")

    @property
    def worker_pid(self) -> int:
        """Of the worker that runs now: of several the first one."""
        return self._child("python")

    @property
    def children(self) -> dict[str, int]:
        """The ids of the processes that it has started, by the name of their program.

        Of several with one name the oldest: another Envoy may be checking a configuration.
        """
        found = subprocess.run(  # noqa: S603 - the tests' own
            [
                *("/usr/bin/env", "ps", "--sort", "start_time", "-o", "pid=,comm="),
                *("--ppid", str(self.process.pid)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        children: dict[str, int] = {}
        for line in found.stdout.splitlines():
            pid, name = line.split(None, 1)
            children.setdefault(name, int(pid))
        return children

    def get(self, path: str = "/", key: str = "ada", **more: Any) -> httpx.Response:
        """One request through the gateway, on a connection of its own, by the API key *key*."""
        return PLAIN.get(f"{self.url}{path}", headers={"x-api-key": key}, **more)

    def statuses(self, count: int, path: str = "/limited/a", key: str = "ada") -> list[int]:
        return [self.get(path, key).status_code for _ in range(count)]

    def admin(self, method: str, path: str, **more: Any) -> httpx.Response:
        """A call of the service's admin API."""
        headers = {"authorization": f"Bearer {self.admin_token}"}
        url = f"{self.service_url}/admin/v1{path}"
        return PLAIN.request(method, url, headers=headers, **more)

    def signal(self, which: signal.Signals) -> None:
        os.kill(self.process.pid, which)

    def stop(self) -> None:
        """Ask it to drain."""
        self.process._popen.terminate()

    def wait(self, within: float = 60.0) -> int:
        """Wait for the end; the exit status."""
        return self.process._popen.wait(within)

    def is_serving(self) -> bool:
        try:
            return PLAIN.get(f"{self.url}/").status_code < 500
        except httpx.TransportError:
            return False

    def is_up(self) -> bool:
        """Whether it has said so."""
        if not self.process.is_running:
            raise RuntimeError(f"the gateway has ended: {self.log}")
        return "is up" in self.log

    def _child(self, name: str) -> int:
        found = [pid for program, pid in self.children.items() if program.startswith(name)]
        if not found:
            raise ProcessLookupError(f"no {name} runs: {self.log[-2000:]}")
        return found[0]


@contextmanager
def gateway(
    directory: Path,
    *flags: str,
    rules: str | None = RULES,
    upstream: str | None = None,
    env: dict[str, str] | None = None,
    is_awaited: bool = True,
    is_demo: bool = False,
) -> Iterator[Gateway]:
    """A gateway with *rules* (a text; None: the flags say where they are) before *upstream* (None:
    one of its own, see `echoing`).

    What it says is in the file `log` of *directory*.
    """
    port, service_port = free_port(), free_port()
    with ExitStack() as stack:
        stack.callback(release_port, port)
        stack.callback(release_port, service_port)
        more = {"HEADGATE_ADMIN_TOKEN": TOKEN, **(env or {})}
        call = [*("env", *(f"{key}={value}" for key, value in more.items())), *CALL]
        if not is_demo:
            call += ["--upstream", upstream or stack.enter_context(echoing())]
            if rules is not None:
                (directory / "rules.yaml").write_text(rules, encoding="utf-8")
                call += ["--rules", str(directory / "rules.yaml")]
        call += ["--http", f"127.0.0.1:{service_port}", "--listen", f"127.0.0.1:{port}"]
        for flag, value in (("--grpc", "off"), ("--linger", "0.05"), ("--envoy-threads", "1")):
            call += [] if flag in flags else [flag, value]
        process = Process([*call, *flags], directory / "log")
        stack.callback(process.terminate, within=20.0)
        made = Gateway(process, directory / "log", port, service_port)
        if is_awaited:
            wait_until(made.is_up, "the gateway is up", within=60.0)
        yield made


class _Echo(QuietHandler):
    """Answers everything. `?seconds=N` takes so long, in ten pieces; `x-want: N` is what it says
    that it took of tokens."""

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        pause = float(asked.get("seconds", ["0"])[0])
        pieces = [b"%d\n" % number for number in range(10)] if pause else [self.path.encode()]
        self.send_response(200)
        self.send_header("x-tokens", self.headers.get("x-want", "1"))
        self.send_header("content-length", str(sum(map(len, pieces))))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(pause / len(pieces))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.do_GET()


@contextmanager
def echoing() -> Iterator[str]:
    """The URL of an upstream that answers everything with its path."""
    with upstream_of(_Echo) as port:
        yield f"http://127.0.0.1:{port}"
