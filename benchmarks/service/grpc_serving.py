"""`python -m benchmarks.service.grpc_serving NAME PORT`: a gRPC server to be loaded, until killed.

The bare ones have the same method: it parses a RateLimitRequest and answers OK. In the others a
rule decides, with counters in memory and all headers. Remembered are calls that came before with
the same bytes, as those of busy callers do.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from concurrent import futures
from typing import TYPE_CHECKING, Any, Final

import grpc
import uvloop

from headgate.engine import AsyncRuleEngine
from headgate.rules.reading import read_policy
from headgate.service.core import Core
from headgate.service.grpc import open_server
from headgate.service.rls import RateLimitCalls
from headgate.service.rls.messages import PATH, RateLimitRequest, RateLimitResponse

if TYPE_CHECKING:
    from headgate.service.grpc.method import Unary

HOST: Final = "127.0.0.1"
READY: Final = "ready"
BARE: Final = ("lean on uvloop", "lean on asyncio", "grpcio.aio", "grpcio, threads")
DECIDING: Final = {
    "lean, a rule decides": ("lean", ""),
    "lean, a rule decides, not remembered": (
        "lean",
        "overrides: [{rule: per-address, key: x, extra: 1, until: '2100-01-01T00:00:00Z'}]",
    ),
    "grpcio.aio, a rule decides": ("grpcio", ""),
}
"""The transport, and what the policy has besides its rule: with overrides nothing is remembered."""
NAMES: Final = (*BARE, *DECIDING)

POLICY: Final = """
version: 1
rules:
  - id: per-address
    match: {attributes: {generic_key: api}}
    key_by: attribute:remote_address
    limit: 1000000000/minute
"""


def should_rate_limit(body: bytes) -> bytes:
    """OK for every descriptor."""
    request = RateLimitRequest.FromString(body)
    reply = RateLimitResponse(overall_code=1)
    for _ in request.descriptors:
        reply.statuses.add(code=1)
    return bytes(reply.SerializeToString())


def sample_request(address: str = "203.0.113.7") -> bytes:
    """What Envoy asks, of a usual size."""
    request = RateLimitRequest(domain="bench", hits_addend=1)
    descriptor = request.descriptors.add()
    descriptor.entries.add(key="generic_key", value="api")
    descriptor.entries.add(key="remote_address", value=address)
    return bytes(request.SerializeToString())


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    if name == "grpcio, threads":
        _serve_threads(port)
    elif name in DECIDING:
        kind, more = DECIDING[name]
        # grpcio's server and uvloop do not get on.
        runner = uvloop.run if kind == "lean" else asyncio.run
        runner(_serve(kind, port, deciding(POLICY + more)))
    elif name == "lean on uvloop":
        uvloop.run(_serve("lean", port, should_rate_limit))
    else:
        kind = "lean" if name == "lean on asyncio" else "grpcio"
        asyncio.run(_serve(kind, port, should_rate_limit))


def deciding(policy: str) -> Unary:
    """The method as the service has it, with counters in memory."""
    engine = AsyncRuleEngine(read_policy(policy), salt=b"salt")
    core = Core(engine=engine, clock=time.time_ns, secret=b"a secret of the benchmark")
    return RateLimitCalls(core).should_rate_limit


async def _serve(kind: Any, port: int, method: Unary) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((HOST, port))
    server = open_server(kind, {PATH: method}, {})
    await server.start(sock)
    print(READY, flush=True)
    await asyncio.Event().wait()
    await server.drain(0)


class _Handlers(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        def serve(body: bytes, _context: object) -> bytes:
            return should_rate_limit(body)

        return grpc.unary_unary_rpc_method_handler(serve)


def _serve_threads(port: int) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[_Handlers()])
    server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    print(READY, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
