"""TLS: what clients see of the gateway, and which upstreams it believes.

What clients see is discovered from files, so that a renewed certificate is taken up as soon as it
is moved to its place. Connections under way keep the one they have begun with.
"""

from __future__ import annotations

from posixpath import dirname
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.addresses import is_literal
from headgate.gateway.envoy.discovery import discovered, from_file
from headgate.gateway.envoy.values import extension, typed

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json, Places
    from headgate.gateway.settings import GatewaySettings

_PACKAGE: Final = "envoy.extensions.transport_sockets.tls.v3"
_SOCKET: Final = "envoy.transport_sockets.tls"
_VERSIONS: Final = {"tls_minimum_protocol_version": "TLSv1_2"}
_CERTIFICATE: Final = "certificate"
_CLIENT_CA: Final = "client-ca"


def secret_documents(settings: GatewaySettings) -> dict[str, Json]:
    """The files that tell Envoy where the certificates for clients are, by their names."""
    made: dict[str, Json] = {}
    cert, key, ca = (
        settings.listen_tls_cert,
        settings.listen_tls_key,
        settings.listen_tls_client_ca,
    )
    if cert is not None and key is not None:
        files = {"certificate_chain": {"filename": cert}, "private_key": {"filename": key}}
        watched = _watched(cert) if dirname(cert) == dirname(key) else {}
        made[_file(_CERTIFICATE)] = _secret(_CERTIFICATE, tls_certificate=files | watched)
    if ca is not None:
        trusted = {"trusted_ca": {"filename": ca}, **_watched(ca)}
        made[_file(_CLIENT_CA)] = _secret(_CLIENT_CA, validation_context=trusted)
    return made


def listening_tls(settings: GatewaySettings, places: Places) -> Json | None:
    """How clients' connections are encrypted; None if they are not."""
    if settings.listen_tls_cert is None:
        return None
    context: Json = {
        "tls_params": _VERSIONS,
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_certificate_sds_secret_configs": [_discovering(_CERTIFICATE, places)],
    }
    wants_client = settings.listen_tls_client_ca is not None
    if wants_client:
        context["validation_context_sds_secret_config"] = _discovering(_CLIENT_CA, places)
    return extension(
        _SOCKET,
        f"{_PACKAGE}.DownstreamTlsContext",
        common_tls_context=context,
        require_client_certificate=wants_client,
    )


def upstream_tls(host: str, settings: GatewaySettings, places: Places) -> Json:
    """How connections to the upstream *host* are encrypted, and that it must prove to be it."""
    is_name = not is_literal(host)
    name = {"san_type": "DNS" if is_name else "IP_ADDRESS", "matcher": {"exact": host}}
    context = {
        "tls_params": _VERSIONS,
        "validation_context": {
            "trusted_ca": {"filename": settings.upstream_ca or places.system_ca},
            "match_typed_subject_alt_names": [name],
        },
    }
    sni = {"sni": host} if is_name else {}
    return extension(_SOCKET, f"{_PACKAGE}.UpstreamTlsContext", common_tls_context=context, **sni)


def _file(name: str) -> str:
    return f"secret-{name}.json"


def _secret(name: str, **content: Json) -> Json:
    return discovered([typed(f"{_PACKAGE}.Secret", name=name, **content)])


def _discovering(name: str, places: Places) -> Json:
    return {"name": name, "sds_config": from_file(f"{places.directory}/{_file(name)}")}


def _watched(path: str) -> Json:
    return {"watched_directory": {"path": dirname(path) or "."}}
