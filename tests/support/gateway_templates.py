"""An application, and real gateways before it on what `headgate gateway config` prints."""

from __future__ import annotations

import json
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import httpx

from headgate.cli import main
from tests.support.decision_service import PLAIN
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.envoy import envoy_binary
from tests.support.servers.process import Process
from tests.support.servers.upstream import QuietHandler, upstream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.decision_service import Service

RULES = """\
version: 1
rules:
  - {id: login, match: {endpoint: /login, method: POST}, key_by: ip, limit: 2/hour}
  - {id: per-key, match: {endpoint: "/api/**"}, key_by: api_key, limit: 2/hour; 100/day}
  - {id: shop, match: {host: shop.example, endpoint: "/items"}, key_by: host, limit: 1/hour}
  - {id: own, match: {endpoint: "/status/**"}, key_by: ip, limit: 100/hour}
  - {id: quiet, match: {endpoint: /quiet}, key_by: ip, limit: 1/hour, headers: redacted}
""".replace("2/hour; 100/day", '"2/hour; 100/day"')


class _App(QuietHandler):
    dropped = 0

    def do_GET(self) -> None:
        """Tell what arrived; below /status/ with that status. To /drop nothing is answered.

        What it is asked to have cost, by `x-spend`, it tells in `x-tokens`.
        """
        size = int(self.headers.get("content-length", 0))
        if self.path == "/drop":
            _App.dropped += 1
            self.close_connection = True
            return
        told = {
            "method": self.command,
            "path": self.path,
            "dropped": self.dropped,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(size).decode(),
        }
        body = json.dumps(told).encode()
        is_status = self.path.startswith("/status/")
        self.send_response(int(self.path.rpartition("/")[2]) if is_status else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if "x-spend" in self.headers:
            self.send_header("x-tokens", self.headers["x-spend"])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_POST = do_HEAD = do_OPTIONS = do_PUT = do_GET


@contextmanager
def app() -> Iterator[str]:
    """The URL of an application that tells what it was asked."""
    with upstream_of(_App) as port:
        yield f"http://127.0.0.1:{port}"


def printed(*arguments: str) -> str:
    """What `headgate gateway config` prints."""
    shown = StringIO()
    with redirect_stdout(shown):
        assert main(["gateway", "config", *arguments]) == 0
    return shown.getvalue()


@contextmanager
def gateway(
    name: str,
    directory: Path,
    *arguments: str,
    upstream: str,
    edited: Callable[[str], str] = str,
) -> Iterator[str]:
    """The URL of the gateway *name* on what is printed for it with *arguments*, and *edited*."""
    port = free_port()
    directory.mkdir(exist_ok=True)
    written = directory / ("envoy.yaml" if name == "envoy" else f"{name}.conf")
    listen = f"127.0.0.1:{port}"
    whole = ["--full"] if name == "nginx" else []
    text = printed(name, "--upstream", upstream, "--listen", listen, *whole, *arguments)
    written.write_text(edited(text), encoding="utf-8")
    process = Process(_call(name, written), directory / "log")
    url = f"http://{listen}"
    try:
        wait_until(lambda: _answers(url), f"{name} answers")
        yield url
    finally:
        process.terminate()
        release_port(port)


def _call(name: str, written: Path) -> list[str]:
    directory = str(written.parent)
    if name == "nginx":
        return ["nginx", "-p", directory, "-c", str(written), "-g", "daemon off;"]
    if name == "caddy":
        # Its own admin page has a fixed port; two of them could not run beside each other.
        home = ["env", f"HOME={directory}", f"CADDY_ADMIN=unix//{directory}/admin"]
        return [*home, "caddy", "run", "--adapter", "caddyfile", "--config", str(written)]
    own = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
    return [envoy_binary(), "-c", str(written), *own]


def at(service: Service, name: str) -> list[str]:
    """Where the gateway *name* finds *service*."""
    if name == "envoy":
        return ["--grpc", f"127.0.0.1:{service.grpc_port}"]
    return ["--service", service.url]


def _answers(url: str) -> bool:
    try:
        PLAIN.get(f"{url}/started")
    except httpx.TransportError:
        return False
    return True
