"""`headgate serve` over gRPC, asked by grpcio with Envoy's own definitions."""

from __future__ import annotations

import signal
import socket
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from headgate.service.grpc.protobuf import message_class
from tests.support.decision_service import Service, serving
from tests.support.servers import Certificates, RedisServer, wait_until

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
version: 1
rules:
  - {id: per-user, match: {attributes: {domain: shop}}, key_by: "attribute:user", limit: 3/hour}
"""
# Envoy's own definitions, which have no types.
RLS: Any = import_module("envoy.service.ratelimit.v3.rls_pb2")
STUBS: Any = import_module("envoy.service.ratelimit.v3.rls_pb2_grpc")
OK, OVER = RLS.RateLimitResponse.OK, RLS.RateLimitResponse.OVER_LIMIT


def asked(channel: grpc.Channel, user: str = "ada") -> int:
    request = RLS.RateLimitRequest(domain="shop")
    request.descriptors.add().entries.add(key="user", value=user)
    answer = STUBS.RateLimitServiceStub(channel).ShouldRateLimit(request, timeout=10)
    return int(answer.overall_code)


def over(channel: grpc.Channel, count: int, user: str = "ada") -> list[int]:
    return [asked(channel, user) for _ in range(count)]


def channel_to(service: Service, worker: int = 0) -> grpc.Channel:
    """A connection of its own: grpcio shares them otherwise."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(f"127.0.0.1:{service.grpc_port + worker}", options=options)


def test_envoys_service_is_answered_while_it_drains_too(tmp_path: Path) -> None:
    flags = ("--linger", "1")
    with serving(tmp_path, *flags, rules=RULES, grpc=1) as service:
        for _ in range(4):
            with channel_to(service) as channel:
                asked(channel)
        with channel_to(service) as channel:
            assert asked(channel) == OVER
            assert over(channel, 4, "bob") == [OK, OK, OK, OVER]
            service.signal(signal.SIGTERM)
            wait_until(lambda: not service.is_ready(), "it is not ready")
            assert asked(channel, "eve") == OK
            assert service.wait() == 0
        assert "Traceback" not in service.log


def test_a_unix_socket_serves_a_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "grpc.sock"
    with serving(tmp_path, "--grpc", f"unix:{path}", rules=RULES) as service:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert over(channel, 4) == [OK, OK, OK, OVER]
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
    assert not path.exists()


def test_workers_may_share_a_port(tmp_path: Path) -> None:
    with RedisServer() as redis:
        flags = ("--workers", "2", "--store", redis.url)
        with serving(tmp_path, *flags, rules=RULES, grpc=1) as service:
            codes = []
            for _ in range(8):
                with channel_to(service) as channel:
                    codes.append(asked(channel))
            assert codes == [OK] * 3 + [OVER] * 5
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
            assert "Traceback" not in service.log


def test_workers_may_have_a_port_each(tmp_path: Path) -> None:
    with RedisServer() as redis:
        flags = ("--workers", "2", "--grpc-ports", "each", "--store", redis.url)
        with serving(tmp_path, *flags, rules=RULES, grpc=2) as service:
            with channel_to(service, 0) as first, channel_to(service, 1) as second:
                assert [asked(first), asked(second), asked(first), asked(second)] == [OK] * 3 + [
                    OVER
                ]
            assert f"gRPC: 127.0.0.1:{service.grpc_port + 1}" in service.log
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
            assert "Traceback" not in service.log


def test_tls_asks_for_a_certificate_of_the_authority(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    flags = ["--grpc-tls-cert", str(files.server), "--grpc-tls-key", str(files.server_key)]
    flags += ["--grpc-tls-client-ca", str(files.ca)]
    with serving(tmp_path, *flags, rules=RULES, grpc=1) as service:
        address, ca = f"127.0.0.1:{service.grpc_port}", files.ca.read_bytes()
        known = grpc.ssl_channel_credentials(
            ca, files.client_key.read_bytes(), files.client.read_bytes()
        )
        with grpc.secure_channel(address, known) as channel:
            assert asked(channel) == OK
        unknown = grpc.ssl_channel_credentials(ca)
        with grpc.secure_channel(address, unknown) as channel, pytest.raises(grpc.RpcError):
            asked(channel)


def test_health_is_served_and_ends_with_the_service(tmp_path: Path) -> None:
    request = message_class("grpc.health.v1.HealthCheckRequest")
    response = message_class("grpc.health.v1.HealthCheckResponse")
    with serving(tmp_path, "--linger", "0.1", rules=RULES, grpc=1) as service:
        with channel_to(service) as channel:
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            for name in ("", "envoy.service.ratelimit.v3.RateLimitService"):
                reply = response.FromString(check(request(service=name).SerializeToString()))
                assert reply.status == response.SERVING
            with pytest.raises(grpc.RpcError) as raised:
                check(request(service="other").SerializeToString())
            assert raised.value.code() is grpc.StatusCode.NOT_FOUND
            watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
            states = watch(request().SerializeToString(), timeout=20)
            assert response.FromString(next(states)).status == response.SERVING
            service.signal(signal.SIGTERM)
            assert [response.FromString(one).status for one in states] == [response.NOT_SERVING]
        assert service.wait() == 0


WITHOUT_ZTTP = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "zttp" else find(name, *more)
from headgate.cli import main
sys.exit(main())
"""


def test_without_the_http2_library_http_is_served_and_grpc_reported_missing(
    tmp_path: Path,
) -> None:
    program = (sys.executable, "-c", WITHOUT_ZTTP, "serve")
    with serving(tmp_path, rules=RULES, grpc=1, program=program) as service:
        assert service.is_ready()
        assert "gRPC is not available" in service.log
        assert "gRPC: 127" not in service.log
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", service.grpc_port), timeout=5)
