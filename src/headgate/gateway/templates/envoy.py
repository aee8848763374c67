"""Envoy: a whole bootstrap that asks about every request by RLS."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from headgate.config import Address
from headgate.gateway.templates.options import UNAVAILABLE, filled, quoted
from headgate.policy.envoy_config.attributes import (
    ADDRESS,
    DEBUG,
    GATEWAY_DOMAIN,
    HOST,
    METHOD,
    OUTAGE,
    PATH,
    REFUSED,
    REPORT,
)
from headgate.responses import debug

if TYPE_CHECKING:
    from headgate.config.gateway import Upstream
    from headgate.gateway.templates.options import Report, Wanted


# What Envoy and Istio have in common: the filter that asks, and where it asks, in YAML.


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
  rate_limited_as_resource_exhausted: true      # the status of gRPC calls that are denied
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
            "debug": _header(debug.DEBUG.lower(), DEBUG),
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


_BOOTSTRAP: Final = """\
# Headgate decides, Envoy obeys:
#   envoy -c FILE
# `headgate up` writes such a configuration by itself, follows the rules when they change, and can
# let Envoy decide rules by itself. This one is for an Envoy that you run.
static_resources:
  listeners:
    - name: gateway
      address: <<listen>>
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: gateway
                # Who is asking: the other end of the connection. With load balancers before Envoy
                # say how many in xff_num_trusted_hops.
                use_remote_address: true
                normalize_path: true
                merge_slashes: true
                path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT
                common_http_protocol_options:
                  headers_with_underscores_action: REJECT_REQUEST
                  idle_timeout: 300s
                request_headers_timeout: 10s
                stream_idle_timeout: 300s
                http2_protocol_options:
                  max_concurrent_streams: 100
                  initial_stream_window_size: 65536
                  initial_connection_window_size: 1048576
                # A rule that fails closed while Headgate's store is gone is no limit that was hit.
                local_reply_config:
                  mappers:
                    - filter:
                        metadata_filter:
                          matcher:
                            filter: envoy.filters.http.ratelimit
                            path: [{key: <<refused>>}]
                            value: {string_match: {exact: <<outage>>}}
                          match_if_key_not_found: false
                      status_code: 503
                    <<closed>>
                upgrade_configs:
                  - {upgrade_type: websocket}
                route_config:
                  ignore_port_in_host_matching: true
                  virtual_hosts:
                    - name: upstream
                      domains: [<<domain>>]
                      routes:
                        - match: {prefix: /}
                          route: {cluster: upstream, timeout: 0s}     # streams may last
                http_filters:
                  # Before the router, and behind whatever tells who is asking (JWT and the like).
                  <<filter>>
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    # Where `headgate serve` has its gRPC.
    <<service>>
    # Your application.
    - name: upstream
      type: <<upstream_type>>
      connect_timeout: 5s
      load_assignment:
        cluster_name: upstream
        endpoints:
          - lb_endpoints:
              - endpoint: {address: <<upstream>>}
      <<tls>>
"""  # noqa: E501 - names of Envoy's
_ENVOY_CLOSED: Final = """\
# Nobody passes while Headgate is gone (flag RLSE): what they are told.
- filter: {response_flag_filter: {flags: [RLSE]}}
  headers_to_add:
    - header: {key: Retry-After, value: "1"}
    - header: {key: Cache-Control, value: no-store}
  body_format_override:
    content_type: application/json
    text_format_source: {inline_string: <<body>>}
"""
_TLS: Final = """\
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    <<sni>>
    common_tls_context:
      validation_context:
        trusted_ca: {filename: <<ca>>}     # where Debian has it
        match_typed_subject_alt_names:
          - {san_type: <<san>>, matcher: {exact: <<host>>}}
"""


def envoy_text(wanted: Wanted) -> str:
    """A bootstrap, in YAML."""
    upstream = wanted.upstream
    address = Address(upstream.host, upstream.port, upstream.path)
    return filled(
        _BOOTSTRAP,
        {
            "closed": ""
            if wanted.is_open
            else filled(_ENVOY_CLOSED, {"body": quoted(UNAVAILABLE)}),
            "refused": quoted(REFUSED),
            "outage": quoted(OUTAGE),
            "listen": address_text(wanted.listen),
            "domain": quoted(wanted.server_name or "*"),
            "filter": listed(ratelimit_filter(wanted)),
            "service": listed(service_cluster(wanted)),
            "upstream_type": cluster_type(address),
            "upstream": address_text(address),
            "tls": _tls(upstream) if upstream.is_tls else "",
        },
    )


def listed(text: str) -> str:
    """*text*, a mapping, as an item of a list."""
    first, *others = text.splitlines()
    return "\n".join([f"- {first}", *(f"  {line}" for line in others)])


def _tls(upstream: Upstream) -> str:
    is_address = is_ip(upstream.host)
    return filled(
        _TLS,
        {
            "sni": "" if is_address else f"sni: {quoted(upstream.host)}",
            "ca": CA,
            "san": "IP_ADDRESS" if is_address else "DNS",
            "host": quoted(upstream.host),
        },
    )


# Istio: an EnvoyFilter for its ingress gateway.


_ISTIO_FILTER: Final = """\
# Headgate decides, Istio's ingress gateway obeys:
#   kubectl apply -f FILE
# Whose address Envoy sees depends on what is before it: set externalTrafficPolicy: Local on the
# gateway's Service, or numTrustedProxies in the mesh's gatewayTopology.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: headgate
  namespace: istio-system       # that of the gateway's pods
spec:
  workloadSelector:
    labels: {istio: ingressgateway}     # those of the gateway's pods
  configPatches:
    # Ask about every request, before it is routed.
    - applyTo: HTTP_FILTER
      match:
        context: GATEWAY
        listener:
          filterChain:
            filter:
              name: envoy.filters.network.http_connection_manager
              subFilter: {name: envoy.filters.http.router}
      patch:
        operation: INSERT_BEFORE
        value:
          <<filter>>
    # Where `headgate serve` has its gRPC: a headless Service, so that every pod is an endpoint.
    - applyTo: CLUSTER
      match: {context: GATEWAY}
      patch:
        operation: ADD
        value:
          <<service>>
"""


def istio_text(wanted: Wanted) -> str:
    """A resource of Kubernetes, in YAML."""
    return filled(
        _ISTIO_FILTER, {"filter": ratelimit_filter(wanted), "service": service_cluster(wanted)}
    )
