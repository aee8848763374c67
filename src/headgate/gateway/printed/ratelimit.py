"""What Envoy and Istio have in common: the filter that asks, and where it asks, in YAML."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from headgate.gateway.printed.template import filled, quoted
from headgate.responses import debugging
from headgate.rules.envoy.gateway import (
    ADDRESS,
    DEBUG,
    GATEWAY_DOMAIN,
    HOST,
    METHOD,
    PATH,
    REFUSED,
    REPORT,
)

if TYPE_CHECKING:
    from headgate.gateway.printed.wanted import Report, Wanted
    from headgate.settings import Address

CA: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Where Debian has the certificates of authorities."""

_FILTER: Final = """\
name: envoy.filters.http.ratelimit
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
  domain: <<domain>>
  # What Headgate is told of a request.
  <<told>>
  rate_limits:
    - actions:
        <<debug>>
        <<entries>>
    <<reports>>
  timeout: <<timeout>>      # Envoy's own is 20 ms
  <<failure>>
  enable_x_ratelimit_headers: "OFF"      # Headgate sends its own, and a body
  rate_limit_service:
    transport_api_version: V3
    grpc_service:
      envoy_grpc: {cluster_name: headgate}
"""
_REPORT: Final = """\
# What it has cost, when it is over. Refusals are not reported: they have this metadata.
- actions:
    - generic_key: {descriptor_key: <<report>>, descriptor_value: <<rule>>}
    - metadata:
        descriptor_key: <<refused>>
        metadata_key: {key: envoy.filters.http.ratelimit, path: [{key: <<refused>>}]}
        source: DYNAMIC
        skip_if_absent: true
    <<entries>>
  apply_on_stream_done: true
  hits_addend: {format: <<amount>>}
"""
_CLUSTER: Final = """\
name: headgate
type: <<type>>
connect_timeout: <<timeout>>
load_assignment:
  cluster_name: headgate
  endpoints:
    - lb_endpoints:
        # One for each process of Headgate: connections of HTTP/2 stick to one.
        - endpoint: {address: <<address>>}
circuit_breakers:      # 1024 questions at a time are Envoy's own limit; more would fail
  thresholds:
    - {max_requests: 1000000, max_pending_requests: 1000000}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config:
      http2_protocol_options:
        max_concurrent_streams: 100
        connection_keepalive: {interval: 10s, timeout: 2s}     # a dead connection is noticed
"""
_OPEN: Final = "failure_mode_deny: false      # Headgate is gone or too slow: go on without it"
_CLOSED: Final = """\
failure_mode_deny: true      # Headgate is gone or too slow: nobody passes
status_on_error: {code: ServiceUnavailable}"""
_SAID: Final = frozenset({METHOD, PATH, HOST, ADDRESS})
"""The keys that are there in any case: a header of such a name would be taken for one of them."""

_UNKNOWN: Final = "# Rules that look at other headers than these need a line for each of them."
_KNOWN: Final = (
    "# These are the headers that the rules look at; one that looks at another needs a line."
)


def ratelimit_filter(wanted: Wanted) -> str:
    """The filter that asks Headgate about every request."""
    entries = _entries(wanted)
    return filled(
        _FILTER,
        {
            "domain": GATEWAY_DOMAIN,
            "told": _UNKNOWN if wanted.headers is None else _KNOWN,
            "debug": _header(debugging.DEBUG.lower(), DEBUG),
            "entries": entries,
            "reports": "".join(_report(one, entries) for one in wanted.reports),
            "timeout": f"{wanted.timeout_ms / 1000:g}s",
            "failure": _OPEN if wanted.is_open else _CLOSED,
        },
    )


def service_cluster(wanted: Wanted) -> str:
    """The cluster that Headgate is."""
    return filled(
        _CLUSTER,
        {
            "type": cluster_type(wanted.grpc),
            "timeout": f"{wanted.timeout_ms / 1000:g}s",
            "address": address_text(wanted.grpc),
        },
    )


def cluster_type(address: Address) -> str:
    """How Envoy finds what is at *address*."""
    return "STATIC" if address.is_unix or is_ip(address.host) else "STRICT_DNS"


def address_text(address: Address) -> str:
    """*address* as Envoy has it, on one line."""
    if address.is_unix:
        return f"{{pipe: {{path: {quoted(address.path)}}}}}"
    place = f"address: {quoted(address.host)}, port_value: {address.port}"
    return f"{{socket_address: {{{place}}}}}"


def is_ip(host: str) -> bool:
    """Whether *host* is an address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _entries(wanted: Wanted) -> str:
    """What Headgate is told of a request, an action of Envoy's a line."""
    headers = [_header(one, one) for one in wanted.told_headers if one not in _SAID]
    said = [_header(":method", METHOD), _header(":path", PATH), _header(":authority", HOST)]
    return "\n".join([*said, "- remote_address: {}", *headers])


def _header(name: str, key: str) -> str:
    # Without skip_if_absent a request that lacks it would not be asked about at all.
    return (
        f"- request_headers: {{header_name: {quoted(name)}, descriptor_key: {quoted(key)}, "
        "skip_if_absent: true}"
    )


def _report(report: Report, entries: str) -> str:
    header = report.header
    amount = "%BYTES_SENT%" if header is None else f"%RESPONSE_HEADER({header})%"
    return filled(
        _REPORT,
        {
            "report": quoted(REPORT),
            "rule": quoted(report.rule),
            "refused": quoted(REFUSED),
            "entries": entries,
            "amount": quoted(amount),
        },
    )
