"""The gRPC server that a service wants, of those that are installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from headgate.errors import OptionError

from .limits import DEFAULT, GrpcLimits

if TYPE_CHECKING:
    from .method import Methods, Streams
    from .server import GrpcServer
    from .tls import TlsFiles

Kind = Literal["auto", "lean", "grpcio"]


def open_server(
    kind: Kind,
    methods: Methods,
    streams: Streams,
    *,
    limits: GrpcLimits = DEFAULT,
    tls: TlsFiles | None = None,
) -> GrpcServer:
    """A server for *methods* and *streams*, not yet listening.

    *kind* "lean" is quick, "grpcio" is Google's own; "auto" takes the lean one where its package
    is installed. `OptionError` if the package is missing, or a file of *tls* unusable.
    """
    both = sorted(methods.keys() & streams.keys())
    if both:
        raise OptionError(f"a path is of one method, and these are of two: {', '.join(both)}")
    if kind == "auto":
        kind = "lean" if find_spec("zttp") is not None else "grpcio"
    if kind == "lean":
        _need("zttp")
        from .lean.server import LeanServer

        return LeanServer(methods, streams, limits=limits, tls=tls)
    if kind == "grpcio":
        _need("grpc")
        from .grpcio_server import GrpcioServer

        return GrpcioServer(methods, streams, limits=limits, tls=tls)
    raise OptionError(f"a gRPC server is 'auto', 'lean' or 'grpcio', not {kind!r}")


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise OptionError(
            f"this gRPC server needs the package {package!r}: pip install 'headgate[service]'"
        )
