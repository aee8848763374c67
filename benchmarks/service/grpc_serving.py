"""`python -m benchmarks.service.grpc_serving NAME PORT`: a gRPC server to be loaded, until killed.

Every one of them has the same method: it parses a RateLimitRequest and answers OK.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent import futures
from typing import Any, Final

import grpc
import uvloop

from headgate.service.grpc import open_server
from headgate.service.rls.messages import PATH, RateLimitRequest, RateLimitResponse

HOST: Final = "127.0.0.1"
READY: Final = "ready"
NAMES: Final = ("lean on uvloop", "lean on asyncio", "grpcio.aio", "grpcio, threads")


def should_rate_limit(body: bytes) -> bytes:
    """OK for every descriptor."""
    request = RateLimitRequest.FromString(body)
    reply = RateLimitResponse(overall_code=1)
    for _ in request.descriptors:
        reply.statuses.add(code=1)
    return bytes(reply.SerializeToString())


def sample_request() -> bytes:
    """What Envoy asks, of a usual size."""
    request = RateLimitRequest(domain="bench", hits_addend=1)
    descriptor = request.descriptors.add()
    descriptor.entries.add(key="generic_key", value="api")
    descriptor.entries.add(key="remote_address", value="203.0.113.7")
    return bytes(request.SerializeToString())


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    if name == "grpcio, threads":
        _serve_threads(port)
    elif name == "lean on uvloop":
        uvloop.run(_serve("lean", port))
    else:
        asyncio.run(_serve("lean" if name == "lean on asyncio" else "grpcio", port))


async def _serve(kind: Any, port: int) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((HOST, port))
    server = open_server(kind, {PATH: should_rate_limit}, {})
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
