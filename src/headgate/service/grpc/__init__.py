"""gRPC: what a method is, and the servers that carry calls to it.

method (open_server) -> h2_server/, grpcio_server -> wire
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
