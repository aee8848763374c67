"""The whole way: a client, the real Envoy, `headgate serve` as a process, and back."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.decision_service import Service, serving
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.envoy import EnvoyServer, cluster, http_listener
from tests.support.servers.upstream import QuietHandler, upstream_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
_USER = {"request_headers": {"header_name": "x-user-id", "descriptor_key": "user"}}
_PER_USER = """\
version: 1
rules:
  - id: per-user
    match: {attributes: {user: true}}
    key_by: attribute:user
    limit: 3/hour
"""


class _Upstream(QuietHandler):
    """Answers everything, and says that it took the tokens that it was asked for."""

    def do_GET(self) -> None:
        body = f"{self.command} {self.path}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-tokens", self.headers.get("x-want", "1"))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def _behind_envoy(filters: list[dict[str, Any]], service: Service) -> Iterator[httpx.Client]:
    """A client of an Envoy that has *filters* before an upstream."""
    port = free_port()
    with ExitStack() as stack:
        stack.callback(release_port, port)
        upstream = stack.enter_context(upstream_of(_Upstream))
        routes = [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]
        listener = http_listener(port, virtual_host={"routes": routes}, filters=list(filters))
        clusters = [cluster("upstream", upstream), cluster("headgate-http", service.port)]
        if service.grpc_port:
            clusters.append(cluster("headgate", service.grpc_port, http2=True))
        config = {"static_resources": {"listeners": [listener], "clusters": clusters}}
        stack.enter_context(EnvoyServer(config))
        yield stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}"))


def _rate_limit(*rate_limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": f"{_FILTERS}.ratelimit.v3.RateLimit",
            "domain": "edge",
            "timeout": "2s",
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": "headgate"}},
            },
            "rate_limits": list(rate_limits),
            **more,
        },
    }


def _authorize() -> dict[str, Any]:
    told = ["retry-after", "content-type", "x-ratelimit-limit", "x-ratelimit-remaining"]
    patterns = {"patterns": [{"exact": name} for name in told]}
    return {
        "name": "envoy.filters.http.ext_authz",
        "typed_config": {
            "@type": f"{_FILTERS}.ext_authz.v3.ExtAuthz",
            "http_service": {
                "server_uri": {
                    "uri": "http://headgate",
                    "cluster": "headgate-http",
                    "timeout": "2s",
                },
                "path_prefix": "/v1/authorize",
                "authorization_response": {
                    "allowed_client_headers": patterns,
                    "allowed_client_headers_on_success": patterns,
                },
            },
            "allowed_headers": {"patterns": [{"prefix": "x-"}]},
        },
    }


def test_envoy_asks_before_every_request_and_tells_the_client(tmp_path: Path) -> None:
    with (
        serving(tmp_path, rules=_PER_USER, grpc=1) as service,
        _behind_envoy([_rate_limit({"actions": [_USER]})], service) as client,
    ):
        ada = [client.get("/", headers={"x-user-id": "ada"}) for _ in range(4)]
        bob = client.get("/", headers={"x-user-id": "bob"})
        nobody = [client.get("/").status_code for _ in range(5)]
    assert [reply.status_code for reply in ada] == [200, 200, 200, 429]
    assert [reply.headers["x-ratelimit-remaining"] for reply in ada] == ["2", "1", "0", "0"]
    assert 0 < int(ada[-1].headers["retry-after"]) <= 1200
    assert bob.status_code == 200
    assert nobody == [200] * 5


def test_what_a_response_cost_is_charged_in_full_and_worked_off(tmp_path: Path) -> None:
    """A check of nothing before, a report of the real amount when the stream is done."""
    rules = _PER_USER.replace("3/hour", "100/hour")
    phases = (
        {"actions": [_USER], "hits_addend": {"number": 0}},
        {
            "actions": [_USER],
            "apply_on_stream_done": True,
            "hits_addend": {"format": "%RESPONSE_HEADER(x-tokens)%"},
        },
    )
    asked = {"attributes": {"domain": "edge", "descriptor": "user", "user": "ada"}, "path": "/"}
    with (
        serving(tmp_path, rules=rules, grpc=1) as service,
        _behind_envoy([_rate_limit(*phases)], service) as client,
    ):

        def left() -> int:
            told = httpx.post(f"{service.url}/v1/rate_limit", json=asked).json()
            return int(told["limits"][0]["remaining"])

        first = client.get("/", headers={"x-user-id": "ada", "x-want": "60"})
        wait_until(lambda: left() == 40, "the first report is counted")
        second = client.get("/", headers={"x-user-id": "ada", "x-want": "300"})
        wait_until(lambda: left() == 0, "the second one is, though it is beyond the limit")
        third = client.get("/", headers={"x-user-id": "ada", "x-want": "1"})
        other = client.get("/", headers={"x-user-id": "bob", "x-want": "1"})
        check = httpx.post(f"{service.url}/v1/check", json=asked)
    assert (first.status_code, second.status_code) == (200, 200)
    assert third.status_code == 429
    assert other.status_code == 200
    assert check.status_code == 429
    assert check.json()["retry_after"] > 2 * 3600 * 0.9  # 260 beyond a hundred an hour


def test_a_configuration_of_envoyproxys_own_service_is_used_unchanged(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "edge.yaml").write_text(
        """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: user
    value: root
    rate_limit: {unlimited: true}
  - key: user
    value: mallory
    rate_limit: {unit: hour, requests_per_unit: 0}
"""
    )
    with (
        serving(tmp_path, "--envoy-config", str(config), rules=None, grpc=1) as service,
        _behind_envoy(
            [_rate_limit({"actions": [_USER]}, enable_x_ratelimit_headers="DRAFT_VERSION_03")],
            service,
        ) as client,
    ):

        def statuses(user: str) -> list[int]:
            asked = [client.get("/", headers={"x-user-id": user}) for _ in range(3)]
            return [reply.status_code for reply in asked]

        assert statuses("ada") == [200, 200, 429]
        assert statuses("root") == [200, 200, 200]
        assert statuses("mallory") == [429, 429, 429]


def test_forward_auth_sees_the_request_itself(tmp_path: Path) -> None:
    rules = """\
version: 1
rules:
  - {id: reads, match: {endpoint: /things/*, method: GET}, key_by: user_id, limit: 2/hour}
"""
    with (
        serving(tmp_path, rules=rules) as service,
        _behind_envoy([_authorize()], service) as client,
    ):
        ada = {"x-user-id": "ada"}
        replies = [client.get(f"/things/{n}?page=2", headers=ada) for n in range(3)]
        elsewhere = client.get("/others/1", headers=ada)
        bob = client.get("/things/1", headers={"x-user-id": "bob"})
    assert [reply.status_code for reply in replies] == [200, 200, 429]
    assert replies[0].text == "GET /things/0?page=2"
    assert [reply.headers["x-ratelimit-remaining"] for reply in replies] == ["1", "0", "0"]
    assert replies[2].json()["error"] == "rate_limit_exceeded"
    assert "retry-after" in replies[2].headers
    assert (elsewhere.status_code, bob.status_code) == (200, 200)


def test_envoy_goes_on_when_the_service_comes_back(tmp_path: Path) -> None:
    closed = _rate_limit(
        {"actions": [_USER]}, failure_mode_deny=True, status_on_error={"code": "ServiceUnavailable"}
    )
    with ExitStack() as stack:
        service = stack.enter_context(serving(tmp_path, rules=_PER_USER, grpc=1))
        client = stack.enter_context(_behind_envoy([closed], service))
        ada = {"x-user-id": "ada"}
        assert client.get("/", headers=ada).status_code == 200
        service.process.kill()
        assert client.get("/", headers=ada).status_code == 503
        (tmp_path / "again").mkdir()
        again = serving(tmp_path / "again", rules=_PER_USER, grpc=1, grpc_port=service.grpc_port)
        stack.enter_context(again)
        wait_until(
            lambda: client.get("/", headers=ada).status_code == 200, "the service is found again"
        )
