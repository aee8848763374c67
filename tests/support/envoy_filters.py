"""The filters of a policy in a real Envoy, before an upstream, with a real service behind them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from headgate.config.gateway import GatewaySettings
from headgate.gateway.envoy.filters import http_filters
from headgate.policy.loader import read_policy
from tests.support.servers import free_port, release_port
from tests.support.servers.envoy import EnvoyServer, cluster, http_listener
from tests.support.servers.upstream import CostingHandler, upstream_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.policy.model import Policy


class Front:
    """An Envoy, and a client of it."""

    def __init__(self, envoy: EnvoyServer, client: httpx.Client, url: str) -> None:
        self.envoy, self._client, self._url = envoy, client, url

    def get(self, path: str = "/", method: str = "GET", **headers: str) -> httpx.Response:
        """A request; names of headers with `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.request(method, f"{self._url}{path}", headers=named)

    def statuses(self, count: int, path: str = "/", **headers: str) -> list[int]:
        return [self.get(path, **headers).status_code for _ in range(count)]

    def passed(self, count: int, path: str = "/", **headers: str) -> int:
        return self.statuses(count, path, **headers).count(200)


@contextmanager
def front(rules: str, grpc_port: int = 1, **settings: Any) -> Iterator[Front]:
    """An Envoy that enforces *rules*, with the service's gRPC at *grpc_port*."""
    made = GatewaySettings(**settings)
    port = free_port()
    with ExitStack() as stack:
        stack.callback(release_port, port)
        behind = stack.enter_context(upstream_of(CostingHandler))
        config = bootstrap(policy_of(rules), made, port, behind, grpc_port)
        envoy = stack.enter_context(EnvoyServer(config))
        client = stack.enter_context(httpx.Client(trust_env=False))
        yield Front(envoy, client, f"http://127.0.0.1:{port}")


def policy_of(rules: str) -> Policy:
    return read_policy(f"version: 1\n{rules}")


def bootstrap(
    policy: Policy, settings: GatewaySettings, port: int, behind: int, grpc_port: int
) -> dict[str, Any]:
    filters: list[Any] = [
        {"name": one.name, "typed_config": one.config} for one in http_filters(policy, settings)
    ]
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]
    listener = http_listener(port, virtual_host={"routes": routes}, filters=filters)
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager |= {
        "use_remote_address": False,
        "xff_num_trusted_hops": 0,
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    }
    clusters = [cluster("upstream", behind), cluster("headgate", grpc_port, http2=True)]
    runtime = {"re2": {"max_program_size": {"error_level": 100_000}}}
    return {
        "static_resources": {"listeners": [listener], "clusters": clusters},
        "layered_runtime": {"layers": [{"name": "own", "static_layer": runtime}]},
    }
