"""The programs that are measured: the service, gateways, a bare upstream and a bare app."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from tests.support.gateways import NGINX_HEAD
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.envoy import cluster, envoy_binary, http_listener
from tests.support.servers.process import Driven, Process

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

HOST: Final = "127.0.0.1"
_UPSTREAM: Final = """\
  keepalive_requests 1000000000;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 "ok"; }}
  }}
}}
"""
_BARE_APP: Final = """
import sys
import uvicorn

async def app(scope, receive, send):
    headers = [(b"content-type", b"application/json"), (b"content-length", b"17")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"allowed": true}'})

uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", lifespan="off",
            log_level="error", access_log=False, proxy_headers=False, server_header=False,
            date_header=False)
"""


class Server(Driven):
    """A program in its own process; its files are in *directory*, it listens on `port`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports: list[int] = []
        self._process: Process | None = None
        directory.mkdir()
        self.port = self.another_port()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def another_port(self) -> int:
        self._ports.append(free_port())
        return self._ports[-1]

    def run(self, *call: str, ready: str | None = "/") -> None:
        """Start the program; wait until it answers 200 at the path *ready*."""
        self._process = Process(call, self.directory / "log")
        if ready is not None:
            wait_until(lambda: self._answers(ready), f"{call[0]} answers", within=60)

    def _answers(self, path: str) -> bool:
        if not self._running().is_running:
            raise RuntimeError(f"the program has ended: {self.log[-4000:]}")
        try:
            return httpx.get(f"http://{self.address}{path}", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self.kill()
        for port in self._ports:
            release_port(port)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cpu_ns(self) -> int:
        """The processor time of the process and its children, so far."""
        tasks = (Path(f"/proc/{thread}/schedstat") for thread in self._threads())
        return sum(int(task.read_text().split()[0]) for task in tasks)

    def stay_on(self, processors: Collection[int]) -> None:
        """Run on these *processors* only."""
        for thread in self._threads():
            os.sched_setaffinity(thread, processors)

    def _threads(self) -> list[int]:
        return [
            int(task.name)
            for process in _tree(self._running().pid)
            for task in Path(f"/proc/{process}/task").iterdir()
        ]


def _tree(root: int) -> Iterator[int]:
    """Yield *root* and all processes below it."""
    yield root
    for task in Path(f"/proc/{root}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


class Upstream(Server):
    """An nginx that answers at once."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        config = directory / "nginx.conf"
        config.write_text((NGINX_HEAD + _UPSTREAM).format(directory=directory, port=self.port))
        self.run("nginx", "-c", str(config), "-p", str(directory))


class BareApp(Server):
    """uvicorn with an app that only answers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.run(sys.executable, "-c", _BARE_APP, str(self.port))


class DecisionService(Server):
    """`headgate serve` with the rules *text*; `port` is that of HTTP."""

    def __init__(self, directory: Path, text: str, *flags: str) -> None:
        super().__init__(directory)
        self.grpc_port = self.another_port()
        rules = directory / "rules.yaml"
        rules.write_text(text)
        call = [sys.executable, "-m", "headgate.cli", "serve", "--rules", str(rules)]
        call += ["--http", self.address, "--grpc", f"{HOST}:{self.grpc_port}"]
        self.run(*call, *flags, ready="/readyz")


class Gateway(Server):
    """`headgate up` with the rules *text* in front of *upstream*, with one thread in Envoy."""

    def __init__(self, directory: Path, upstream: str, text: str, *flags: str) -> None:
        super().__init__(directory)
        rules = directory / "rules.yaml"
        rules.write_text(text)
        call = [sys.executable, "-m", "headgate.cli", "up", "--rules", str(rules)]
        call += ["--upstream", upstream, "--listen", self.address, "--envoy-threads", "1"]
        call += ["--http", f"{HOST}:{self.another_port()}"]
        call += ["--grpc", f"unix:{directory}/grpc.sock"]
        self.run(*call, *flags)


class OtherGateway(Server):
    """An Envoy with the least configuration that calls another rate limit service."""

    def __init__(self, directory: Path, upstream_port: int, service_port: int) -> None:
        super().__init__(directory)
        host = {"routes": [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]}
        listener = http_listener(self.port, virtual_host=host, filters=[RLS_FILTER])
        listener["filter_chains"][0]["filters"][0]["typed_config"]["use_remote_address"] = True
        clusters = [cluster("upstream", upstream_port), cluster("grpc", service_port, http2=True)]
        config = directory / "envoy.json"
        config.write_text(
            json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}})
        )
        call = (envoy_binary(), "--config-path", str(config), "--log-level", "error")
        self.run(*call, "--concurrency", "1", "--disable-hot-restart")


def _entry(header: str, key: str) -> dict[str, Any]:
    return {"request_headers": {"header_name": header, "descriptor_key": key}}


RLS_KEYS: Final = ("method", "path", "host", "remote_address", "x-api-key")
"""The entries of the descriptor that `RLS_FILTER` sends."""
RLS_FILTER: Final[dict[str, Any]] = {
    "name": "envoy.filters.http.ratelimit",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": "headgate",
        "timeout": "2s",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "grpc"}},
        },
        "rate_limits": [
            {
                "actions": [
                    _entry(":method", "method"),
                    _entry(":path", "path"),
                    _entry(":authority", "host"),
                    {"remote_address": {}},
                    _entry("x-api-key", "x-api-key"),
                ]
            }
        ],
    },
}
