"""gRPC methods as bytes in, bytes out, and the servers that carry calls to them.

Read `method` first (`open_server`), then `h2_server/` and `grpcio_server`; `wire` is the encoding.
"""

from headgate.service.grpc.method import (
    CallError,
    Code,
    GrpcLimits,
    GrpcServer,
    Methods,
    Stream,
    Streams,
    TlsFiles,
    Unary,
    open_server,
)

__all__ = [
    "CallError",
    "Code",
    "GrpcLimits",
    "GrpcServer",
    "Methods",
    "Stream",
    "Streams",
    "TlsFiles",
    "Unary",
    "open_server",
]
