"""gRPC: what a method is (`method`), and the servers that carry calls to it.

open_server (opening) -> lean/, grpcio_server -> wire, inbox, limits, tls -> method
"""

from .limits import GrpcLimits
from .method import CallError, Code, Methods, Stream, Streams, Unary
from .opening import open_server
from .server import GrpcServer
from .tls import TlsFiles

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
