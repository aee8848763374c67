"""The sidecar of deploy/: the real Envoy asks `headgate serve` over a unix socket."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.decision_service import PLAIN, serving
from tests.support.servers import free_port, release_port
from tests.support.servers.envoy import EnvoyServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

SIDECAR = Path(__file__).parents[2] / "deploy" / "envoy" / "sidecar.yaml"
RULES = """\
version: 1
identity: {api_key: {header: x-api-key}}
rules:
  - {id: per-caller, match: {endpoint: /healthz}, key_by: ip, limit: 3/hour}
  - {id: per-key, match: {endpoint: /openapi.json}, key_by: api_key, limit: 1/hour}
"""


def sidecar(port: int, socket: Path, application: int) -> AbstractContextManager[EnvoyServer]:
    """Envoy as it is deployed, but for its port, its socket and the application's port."""
    text = SIDECAR.read_text("utf-8")
    text = text.replace("port_value: 8080", f"port_value: {port}")
    text = text.replace("/run/headgate/grpc.sock", str(socket))
    text = text.replace("port_value: 8000", f"port_value: {application}")
    config: dict[str, Any] = yaml.safe_load(text)
    return EnvoyServer(config)


def statuses(url: str, count: int, **options: Any) -> Iterator[int]:
    for _ in range(count):
        yield PLAIN.get(url, **options).status_code


def test_a_sidecar_limits_what_reaches_the_application(tmp_path: Path) -> None:
    socket, port = tmp_path / "grpc.sock", free_port()
    url = f"http://127.0.0.1:{port}"
    # The service's own pages are the application behind Envoy.
    with (
        serving(tmp_path, "--grpc", f"unix:{socket}", rules=RULES) as service,
        sidecar(port, socket, service.port),
    ):
        assert list(statuses(f"{url}/healthz", 5)) == [200] * 3 + [429] * 2
        assert "retry-after" in PLAIN.get(f"{url}/healthz").headers
        for key in ("ada", "bob"):
            asked = {"headers": {"x-api-key": key}}
            assert list(statuses(f"{url}/openapi.json", 2, **asked)) == [200, 429]
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
    release_port(port)
