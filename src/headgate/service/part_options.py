"""What each part of the service is told of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headgate.responses import ResponseOptions

if TYPE_CHECKING:
    import ssl

    from headgate.service.grpc.limits import GrpcLimits
    from headgate.service.grpc.tls import TlsFiles
    from headgate.service.http import HttpOptions
    from headgate.service.http_protocol import Bounds
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rls.options import RlsOptions
    from headgate.service.settings import Settings


def response_options(settings: Settings) -> ResponseOptions:
    """What callers are told."""
    return ResponseOptions(
        x_ratelimit=settings.responses_x_ratelimit,
        ratelimit=settings.responses_ratelimit,
        draft03=settings.responses_draft03,
        problem=settings.responses_problem,
        jitter=settings.responses_jitter,
        jitter_most=settings.responses_jitter_most,
        outage_status=settings.responses_outage_status,
        shed_status=settings.responses_shed_status,
    )


def http_options(settings: Settings) -> HttpOptions:
    """Whom the HTTP API believes, and how much it takes in."""
    from headgate.service.http import HttpOptions

    return HttpOptions(
        gateways=settings.gateways,
        deadline=settings.deadline,
        body_timeout=settings.receive_timeout,
        largest_body=settings.max_body,
    )


def bounds(settings: Settings) -> Bounds:
    """What a connection of HTTP may cost."""
    from headgate.service.http_protocol import Bounds

    return Bounds(
        header=settings.max_header,
        connections=settings.max_connections,
        receive=settings.receive_timeout,
        idle=settings.idle_timeout,
    )


def rls_options(settings: Settings) -> RlsOptions:
    """How Envoy's rate limit service answers."""
    from headgate.service.rls.options import RlsOptions

    words: dict[str, Any] = {
        "charge": settings.rls_charge,
        "reports": settings.rls_reports,
        "on_store_failure": settings.rls_on_store_failure,
    }
    return RlsOptions(
        **words,
        headers=settings.rls_headers,
        metadata=settings.rls_metadata,
        most_bytes=settings.max_message,
    )


def rlqs_options(settings: Settings) -> RlqsOptions:
    """How limits are divided among gateways."""
    from headgate.service.rlqs.options import RlqsOptions

    return RlqsOptions(
        ttl=settings.rlqs_ttl,
        silence=settings.rlqs_silence,
        idle=settings.rlqs_idle,
        most_bytes=settings.max_message,
    )


def grpc_limits(settings: Settings) -> GrpcLimits:
    """What a connection of gRPC may cost."""
    from headgate.service.grpc.limits import MEBIBYTE, GrpcLimits

    most = settings.max_message
    return GrpcLimits(
        message_bytes=most,
        connection_bytes=max(4 * most, 16 * MEBIBYTE),
        connections=settings.max_connections,
    )


def grpc_tls(settings: Settings) -> TlsFiles | None:
    """The files that gRPC proves itself with, if it does."""
    return _tls(settings.grpc_tls_cert, settings.grpc_tls_key, settings.grpc_tls_client_ca)


def https_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS for HTTP/1.1, if it is to have it. Raises `OptionError`."""
    files = _tls(settings.http_tls_cert, settings.http_tls_key, settings.http_tls_client_ca)
    if files is None:
        return None
    context = files.context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def check_tls(settings: Settings) -> None:
    """Raises `OptionError` if a certificate or a key cannot be used."""
    https_context(settings)
    files = grpc_tls(settings)
    if files is not None:
        files.context()


def _tls(certificate: str | None, key: str | None, client_ca: str | None) -> TlsFiles | None:
    from headgate.service.grpc.tls import TlsFiles

    if certificate is None:
        return None
    ca = None if client_ca is None else Path(client_ca)
    return TlsFiles(certificate=Path(certificate), key=Path(cast("str", key)), client_ca=ca)
