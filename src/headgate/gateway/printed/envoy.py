"""Envoy: a whole bootstrap that asks about every request by RLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.printed.ratelimit import (
    CA,
    address_text,
    cluster_type,
    is_ip,
    ratelimit_filter,
    service_cluster,
)
from headgate.gateway.printed.template import filled, quoted
from headgate.gateway.printed.wanted import UNAVAILABLE
from headgate.rules.envoy.gateway import OUTAGE, REFUSED
from headgate.settings import Address

if TYPE_CHECKING:
    from headgate.gateway.printed.wanted import Wanted
    from headgate.gateway.upstreams import Upstream

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
_CLOSED: Final = """\
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
            "closed": "" if wanted.is_open else filled(_CLOSED, {"body": quoted(UNAVAILABLE)}),
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
