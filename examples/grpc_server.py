"""A gRPC server with limits: for all of it, for one method, and for streams at the same time.

    python examples/grpc_server.py    # serves 127.0.0.1:50051

The messages are plain bytes, so that the example needs no generated code.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc

from headgate import Concurrency
from headgate.integrations import RouteLimit, by_header
from headgate.integrations.grpc import RateLimitInterceptor

if TYPE_CHECKING:
    from collections.abc import Iterator

streams = RouteLimit(limits=Concurrency(1, ttl=30), name="streams")
limits = RateLimitInterceptor(
    limits="100/minute",
    key=by_header("x-api-key"),  # without one: the address of the client
    exempt=["/grpc.health.v1.Health/*"],
    methods={"/demo.Words/Login": "5/minute strict", "/demo.Words/Watch": streams},
    store=os.environ.get("HEADGATE_STORE", "memory://"),
)


def login(name: bytes, _context: grpc.ServicerContext) -> bytes:
    """At most five calls in any minute."""
    return b"welcome, " + name


def watch(_topic: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """One stream at a time for each caller."""
    number = 0
    while context.is_active():
        yield b"%d" % number
        number += 1
        time.sleep(0.05)


def check(_service: bytes, _context: grpc.ServicerContext) -> bytes:
    """Not limited."""
    return b"\x08\x01"  # SERVING


def main() -> None:
    """Serve until the process is stopped."""
    server = grpc.server(ThreadPoolExecutor(max_workers=10), interceptors=[limits])
    words: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Login": grpc.unary_unary_rpc_method_handler(login),
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
    }
    health: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Check": grpc.unary_unary_rpc_method_handler(check)
    }
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("demo.Words", words),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),
        )
    )
    server.add_insecure_port(f"127.0.0.1:{os.environ.get('PORT', '50051')}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
