"""The client's address, found by Envoy as `headgate.policy.identity` finds it.

Without trusted proxies it is the peer's address. If the peer is a trusted proxy, it is the last
entry of the header that is not one; Envoy's own detection does that for `X-Forwarded-For`. It reads
at most 20 entries, so the gateway rejects requests with more: they could make a client appear as
its proxy. An entry that is not a bare address (with a port, brackets or quotes) makes the peer the
client.

Another header is copied to `X-Forwarded-For` for the detection and removed afterwards.

The peer of a unix socket has no address. Envoy's limits skip requests without one, so they all get
0.0.0.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.values import extension, put, removed

if TYPE_CHECKING:
    from ipaddress import IPv6Network

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.values import Json
    from headgate.policy.model import AddressSource, Policy

_TRAIL: Final = "x-forwarded-for"
_FORWARDED: Final = "forwarded"
_SCHEME: Final = "x-forwarded-proto"
_SAVED: Final = "x-headgate-forwarded-for"
_PEER: Final = "x-headgate-peer"
_SOCKET: Final = "x-headgate-socket"
_INTERNAL: Final = (_SAVED, _PEER, _SOCKET)
_DIRECT: Final = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"
_NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - nothing listens there: it stands for no address
_MOST_ENTRIES: Final = 20
_DETECTION: Final = "envoy.extensions.http.original_ip_detection"
_MAPPED_BITS: Final = 96


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """The parts of a configuration that finds the address.

    *manager* are fields of the connection manager, *mutations* change headers first, *to_upstream*
    are fields of each route, *internal* headers are not sent upstream, *rejected* matches ambiguous
    requests.
    """

    manager: Json
    mutations: tuple[Json, ...] = ()
    to_upstream: Json = field(default_factory=dict)
    internal: tuple[str, ...] = ()
    rejected: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()


def client_address(policy: Policy, settings: GatewaySettings) -> ClientAddress:
    """The parts that find the address of a client under *policy*, on every listener."""
    source = policy.identity.address
    has_sockets = any(one.is_unix for one in settings.listen)
    is_forwarded = bool(source.trusted_proxies) and source.header != _FORWARDED
    warnings = _warnings(source)
    if not (is_forwarded or has_sockets):
        manager = {"use_remote_address": True, "skip_xff_append": True}
        return ClientAddress(manager, to_upstream=_with_peer(), warnings=warnings)
    return ClientAddress(
        {
            "use_remote_address": False,
            "original_ip_detection_extensions": [
                *([_by_trail(source)] if is_forwarded else []),
                *([_by_header(_SOCKET)] if has_sockets else []),
            ],
        },
        mutations=(
            *_saved(),
            *(_peer() if has_sockets else (put(_PEER, _DIRECT),)),
            *(_instead(source.header) if is_forwarded and source.header != _TRAIL else ()),
            *(() if is_forwarded else (put(_SCHEME, _scheme(settings)),)),
        ),
        to_upstream=_as_it_came(_scheme(settings) if is_forwarded else None),
        internal=_INTERNAL,
        rejected=(_with_many_entries(),) if is_forwarded else (),
        warnings=warnings,
    )


def _scheme(settings: GatewaySettings) -> str:
    return "http" if settings.listen_tls_cert is None else "https"


def _warnings(source: AddressSource) -> tuple[str, ...]:
    if not source.trusted_proxies or source.header == _TRAIL:
        return ()
    if source.header == _FORWARDED:
        text = "the gateway cannot read the header forwarded: all clients behind a trusted proxy"
        return (f"identity.ip.header: {text} count as one; let proxies send x-forwarded-for",)
    return ()


def _by_trail(source: AddressSource) -> Json:
    networks = [form for one in source.trusted_proxies for form in _forms(one)]
    return extension(
        "envoy.http.original_ip_detection.xff",
        f"{_DETECTION}.xff.v3.XffConfig",
        xff_trusted_cidrs={"cidrs": networks},
        skip_xff_append=True,
    )


def _by_header(name: str) -> Json:
    return extension(
        "envoy.http.original_ip_detection.custom_header",
        f"{_DETECTION}.custom_header.v3.CustomHeaderConfig",
        header_name=name,
    )


def _forms(network: IPv4Network | IPv6Network) -> list[Json]:
    """*network*, and an IPv4 network also in the IPv6 form that some proxies send."""
    first, length = str(network.network_address), network.prefixlen
    made: list[Json] = [{"address_prefix": first, "prefix_len": length}]
    if isinstance(network, IPv4Network):
        made.append({"address_prefix": f"::ffff:{first}", "prefix_len": _MAPPED_BITS + length})
    elif (mapped := network.network_address.ipv4_mapped) and length >= _MAPPED_BITS:
        made.append({"address_prefix": str(mapped), "prefix_len": length - _MAPPED_BITS})
    return made


def _instead(header: str) -> tuple[Json, ...]:
    """Copy all lines of *header* to the trail."""
    return removed(_TRAIL), put(_TRAIL, f'%CEL(request.headers["{header}"])%')


def _saved() -> tuple[Json, ...]:
    """Save the trail, and remove internal headers that a client sent."""
    return *map(removed, _INTERNAL), put(_SAVED, f"%REQ({_TRAIL})%")


def _peer() -> tuple[Json, ...]:
    """Put the peer's address into an internal header, and into another one for a unix socket, where
    Envoy has its path as the address."""
    peer = f"request.headers['{_PEER}']"
    return (
        put(_PEER, _DIRECT),
        put(_PEER, f"%CEL({peer}.startsWith('/') ? '{_NO_ADDRESS}' : {peer})%"),
        put(_SOCKET, f"%CEL({peer} == '{_NO_ADDRESS}' ? {peer} : '')%"),
    )


def _with_many_entries() -> Json:
    """Match requests with more entries in the trail than Envoy reads."""
    regex = rf"(?:[^,]*,){{{_MOST_ENTRIES},}}[^,]*"
    return {
        "prefix": "/",
        "headers": [{"name": _TRAIL, "string_match": {"safe_regex": {"regex": regex}}}],
    }


def _with_peer() -> Json:
    """Append the peer to the trail; Envoy itself would leave out a local one."""
    return {"request_headers_to_add": [_appended(_TRAIL, _DIRECT)]}


def _as_it_came(scheme: str | None) -> Json:
    """Restore the trail and append the peer.

    With *scheme* a peer's scheme is kept if its client address was trusted (that address has no
    port); otherwise it is *scheme*.
    """
    made = [_appended(_TRAIL, f"%REQ({_SAVED})%"), _appended(_TRAIL, f"%REQ({_PEER})%")]
    if scheme is not None:
        found = f"source.port == 0 ? request.headers['{_SCHEME}'] : '{scheme}'"
        made.append(put(_SCHEME, f"%CEL({found})%")["append"])
    return {"request_headers_to_remove": [_TRAIL], "request_headers_to_add": made}


def _appended(name: str, value: str) -> Json:
    return {
        "header": {"key": name, "value": value},
        "append_action": "APPEND_IF_EXISTS_OR_ADD",
    }
