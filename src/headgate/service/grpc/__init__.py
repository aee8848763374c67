"""gRPC: what a method is (`method`), and the servers that carry calls to it.

open_server (opening) -> lean/, grpcio_server -> wire, inbox, limits, tls -> method
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
