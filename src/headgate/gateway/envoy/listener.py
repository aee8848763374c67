"""The listener: connections of clients, routes, access log, and Envoy's own responses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.buckets import LIMIT_HEADER
from headgate.gateway.envoy.clusters import (
    cluster_name,
    listening,
    listening_tls,
)
from headgate.gateway.envoy.llm import RATE_LIMIT, error_bodies, of_paths
from headgate.gateway.envoy.values import extension, put, removed, seconds
from headgate.policy.envoy_config.attributes import OUTAGE as REFUSED_BY_OUTAGE
from headgate.policy.envoy_config.attributes import REFUSED
from headgate.policy.envoy_config.attributes import TOO_LONG as REFUSED_BY_PATH
from headgate.policy.path import LONGEST
from headgate.responses.bodies import EXCEEDED, JSON, OUTAGE, PUSHBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.config.gateway import GatewaySettings, Upstream
    from headgate.gateway.envoy.values import Edge, Json


# The access log: a line of JSON for each request.


_STDOUT: Final = "-"
_FIELDS: Final = {
    "time": "%START_TIME%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%PATH(NQ)%",
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "why": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "ms": "%DURATION%",
    "upstream": "%UPSTREAM_CLUSTER%",
    "request_id": "%REQ(X-REQUEST-ID)%",
}
"""Neither the query nor other headers: they may hold secrets."""


def access_logs(settings: GatewaySettings) -> list[Json]:
    """The access log, if the settings have one."""
    if settings.access_log is None:
        return []
    line = {"json_format": _FIELDS}
    if settings.access_log == _STDOUT:
        kind = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
        return [extension("envoy.access_loggers.stdout", kind, log_format=line)]
    kind = "envoy.extensions.access_loggers.file.v3.FileAccessLog"
    return [extension("envoy.access_loggers.file", kind, path=settings.access_log, log_format=line)]


# Responses of Envoy itself: JSON in the form of denials, without details of upstreams.
#
# Filters write the bodies of denials, except those of local limits. The headers of those have the
# rule, if it may be shown, and the time to wait.


OUTAGE_STATUS: Final = 503
URI_TOO_LONG: Final = 414
TOO_LONG: Final = ("path_too_long", "The path of this request is too long. Send a shorter one.")
_RUNTIME: Final = "headgate.reply"
_IS_LOCAL: Final = "response.code_details == 'local_rate_limited'"
_HAS_FIGURES: Final = (
    f"{_IS_LOCAL} && '{LIMIT_HEADER}' in response.headers && 'retry-after' in response.headers"
)
_WAIT: Final = "%RESP(retry-after)%"
_WITH_FIGURES: Final = (
    f'{{"error": "{EXCEEDED[0]}", "message": "{EXCEEDED[2]}. Try again in {_WAIT} s.",'
    f' "limit": "%RESP({LIMIT_HEADER})%", "retry_after_ms": {_WAIT}000, "retry_after": {_WAIT}}}'
)
_IS_GRPC_DENIAL: Final = (
    "response.code == 429 && 'retry-after' in response.headers"
    " && request.headers['content-type'].startsWith('application/grpc')"
)
_WITHOUT_FIGURES: Final = (EXCEEDED[0], f"{EXCEEDED[2]}. Try again later.")
_BY_FLAGS: Final = (
    (("RLSE",), OUTAGE[0], f"{OUTAGE[2]}. Try again later."),
    (("NR",), "not_found", "Nothing is here."),
    (
        ("UF", "UH", "UC", "UO", "UR", "URX", "LR", "NC"),
        "upstream_unavailable",
        "The server behind this gateway does not answer. Try again later.",
    ),
)
_BY_STATUS: Final = (
    (400, "bad_request", "This request is not understood."),
    (403, "forbidden", "This request is not allowed."),
    (404, "not_found", "Nothing is here."),
    (408, "request_timeout", "The request took too long to arrive."),
    (413, "payload_too_large", "The request is too large."),
    (URI_TOO_LONG, *TOO_LONG),
    (426, "upgrade_required", "Use HTTP/1.1 or later."),
    (431, "headers_too_large", "The head of the request is too large."),
    (500, "internal_error", "The gateway cannot handle this request."),
    (501, "not_implemented", "The gateway cannot handle such a request."),
    (502, "bad_gateway", "The server behind this gateway gave no answer that makes sense."),
    (503, "overloaded", "The gateway cannot take this request now. Try again later."),
    (504, "upstream_timeout", "The server behind this gateway took too long."),
)


def local_replies(models: Iterable[tuple[int, Sequence[Json], str]] = ()) -> Json:
    """The bodies of responses without an upstream, by reason or by status. *models* are those of
    `error_bodies`."""
    limits = [
        _formatted(_where(_HAS_FIGURES), _WITH_FIGURES),
        _mapper(_where(_IS_LOCAL), *_WITHOUT_FIGURES),
    ]
    flags = [_mapper(_flagged(flags), error, text) for flags, error, text in _BY_FLAGS]
    statuses = [_mapper(_with_status(code), error, text) for code, error, text in _BY_STATUS]
    refusals = [
        _refused(REFUSED_BY_OUTAGE, OUTAGE_STATUS),
        {**_refused(REFUSED_BY_PATH, URI_TOO_LONG), **_body(*TOO_LONG)},
    ]
    return {
        "mappers": [
            *refusals,
            _grpc_denial(),
            *map(_model_error, models),
            *limits,
            *flags,
            *statuses,
        ]
    }


def plain_body(error: str, message: str) -> str:
    """The body of a response."""
    return json.dumps({"error": error, "message": message})


def _grpc_denial() -> Json:
    """The denial of a gRPC call by a limit: a message in place of a body, and when to retry."""
    wait = {"header": {"key": PUSHBACK, "value": f"{_WAIT}000"}}
    message = {"inline_string": f"{EXCEEDED[2]}. Try again in {_WAIT} s."}
    return {
        "filter": _where(_IS_GRPC_DENIAL),
        "headers_to_add": [wait],
        "body_format_override": {"text_format_source": message},
    }


def _model_error(error: tuple[int, Sequence[Json], str]) -> Json:
    """A response to a call of a language model, in the form of the provider."""
    status, matchers, body = error
    headers = [{"header_filter": {"header": one}} for one in matchers]
    both = {"and_filter": {"filters": [_with_status(status), *headers]}}
    return _formatted(both if headers else _with_status(status), body)


def _refused(why: str, status: int) -> Json:
    """A denial that the service gives *why* for: *status* instead of the filter's 429."""
    matcher = {
        "filter": RATE_LIMIT,
        "path": [{"key": REFUSED}],
        "value": {"string_match": {"exact": why}},
    }
    # By default a request without this metadata would match too.
    which = {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": False}}
    return {"filter": which, "status_code": status}


def _mapper(which: Json, error: str, message: str) -> Json:
    return {"filter": which, **_body(error, message)}


def _formatted(which: Json, text: str) -> Json:
    return {"filter": which, **_body_text(text)}


def _body(error: str, message: str) -> Json:
    return _body_text(plain_body(error, message).replace("%", "%%"))


def _body_text(text: str) -> Json:
    source = {"inline_string": text}
    return {"body_format_override": {"content_type": JSON, "text_format_source": source}}


def _where(expression: str) -> Json:
    kind = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    name = "envoy.access_loggers.extension_filters.cel"
    return {"extension_filter": extension(name, kind, expression=expression)}


def _flagged(flags: tuple[str, ...]) -> Json:
    return {"response_flag_filter": {"flags": list(flags)}}


def _with_status(code: int) -> Json:
    value = {"default_value": code, "runtime_key": f"{_RUNTIME}.{code}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


# Routes.
#
# Envoy picks a virtual host first (the exact name, then the longest wildcard, then any), and takes
# its first matching route. So a host has its own routes, those of the wildcards above it and those
# of any host, each with the longest path first.


_ANY: Final = "*"
_OF_ENVOY: Final = ("x-envoy-external-address", "x-envoy-internal")


def route_config(edge: Edge) -> Json:
    """The routes. Internal headers are not sent upstream."""
    hosts = sorted({one.for_host for one in edge.settings.upstream})
    return {
        "name": "upstreams",
        "ignore_port_in_host_matching": True,
        "request_headers_to_remove": [
            *_OF_ENVOY,
            *edge.address.internal,
            *edge.lines.internal,
            _LONG_PATH,
        ],
        "virtual_hosts": [_virtual_host(host, edge) for host in hosts],
    }


def _virtual_host(host: str, edge: Edge) -> Json:
    fitting = _fitting(host, edge.settings.upstream)
    rejected = *edge.address.rejected, *edge.lines.rejected
    return {
        "name": host or _ANY,
        "domains": [host or _ANY],
        "routes": [
            _long_path(),
            *({"match": match, "direct_response": {"status": 400}} for match in rejected),
            *(route for one in fitting for route in _routes(one, edge)),
        ],
    }


_LONG_PATH: Final = "x-headgate-long-path"


def _long_path() -> Json:
    """Reject a path that rules do not examine. Filters may have denied the request before."""
    match = {"prefix": "/", "headers": [{"name": _LONG_PATH, "present_match": True}]}
    return {"match": match, "direct_response": {"status": URI_TOO_LONG}}


def _fitting(host: str, upstreams: Iterable[Upstream]) -> list[Upstream]:
    """The upstreams for requests to *host*, in the order of their routes."""
    found = [one for one in upstreams if _is_within(host, one.for_host)]
    return sorted(found, key=lambda one: (-len(one.for_host), -len(one.for_path)))


def _is_within(host: str, pattern: str) -> bool:
    """True if *pattern* covers all requests of *host*, which may be a wildcard."""
    is_below = pattern.startswith("*.") and host.endswith(pattern[1:])
    return host == pattern or not pattern or is_below


def _routes(upstream: Upstream, edge: Edge) -> list[Json]:
    """The route to *upstream*; before it that of requests whose bodies are read."""
    path = upstream.for_path
    match: Json = {"prefix": "/"} if path == "/" else {"path_separated_prefix": path}
    route: Json = {
        "match": match,
        "route": {
            "cluster": cluster_name(upstream),
            "timeout": seconds(edge.settings.upstream_timeout),
        },
        "response_headers_to_remove": list(edge.own_headers),
        **edge.address.to_upstream,
    }
    if not edge.model_route:
        return [route]
    headers = of_paths(edge.model_paths)
    name = "request_headers_to_remove"
    without = [*route.get(name, ()), *edge.model_route.get(name, ())]
    own: Json = {**route, **edge.model_route, name: without}
    return [{**own, "match": {**match, "headers": headers}}, route] if headers else [own]


# The connection manager: Envoy's guide for edge proxies, and a little more.


_FILTERS: Final = "envoy.extensions.filters"
_MANAGER: Final = f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager"
_MUTATION: Final = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
_KIB: Final = 1024
_MOST_HEADERS: Final = 100
_STREAM_WINDOW: Final = 64 * _KIB
_CONNECTION_WINDOW: Final = 1024 * _KIB


def connection_manager(edge: Edge, filters: Sequence[Json]) -> Json:
    """The connection manager: reads requests, runs the filters, and routes."""
    settings, address = edge.settings, edge.address
    return extension(
        "envoy.filters.network.http_connection_manager",
        _MANAGER,
        stat_prefix="gateway",
        route_config=route_config(edge),
        http_filters=[*_health(settings), *filters, _router()],
        local_reply_config=local_replies(
            error_bodies(edge.model_paths) if edge.model_route else ()
        ),
        access_log=access_logs(settings),
        upgrade_configs=[{"upgrade_type": "websocket"}],
        early_header_mutation_extensions=[_mutated(edge)],
        **address.manager,
        **_paths(),
        **_bounds(settings),
    )


def _health(settings: GatewaySettings) -> list[Json]:
    """The health check for load balancers, before any limit: 200, or 503 while it stops."""
    if settings.health_path is None:
        return []
    kind = f"{_FILTERS}.http.health_check.v3.HealthCheck"
    path = {"name": ":path", "string_match": {"exact": settings.health_path}}
    name = "envoy.filters.http.health_check"
    return [extension(name, kind, pass_through_mode=False, headers=[path])]


def _router() -> Json:
    kind = f"{_FILTERS}.http.router.v3.Router"
    return extension("envoy.filters.http.router", kind, suppress_envoy_headers=True)


def _mutated(edge: Edge) -> Json:
    """Changes to headers first: clients cannot control Envoy by `x-envoy-` headers."""
    removal = {"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}}
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        _MUTATION,
        mutations=[
            removal,
            removed(_LONG_PATH),
            put(_LONG_PATH, f"%CEL(size(request.url_path) > {LONGEST} ? 'long' : '')%"),
            *edge.address.mutations,
            *edge.lines.mutations,
        ],
    )


def _paths() -> Json:
    """Normalise paths, so that rules and upstreams see the same.

    An escaped slash is ambiguous: the client is redirected to the path with a slash.
    """
    return {
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    }


def _bounds(settings: GatewaySettings) -> Json:
    """Bounds against slow and hostile clients. A request may take any time as long as data flows:
    streams and websockets have no end."""
    return {
        "common_http_protocol_options": {
            "idle_timeout": seconds(settings.client_idle_timeout),
            "headers_with_underscores_action": "REJECT_REQUEST",
            "max_headers_count": _MOST_HEADERS,
        },
        "http2_protocol_options": {
            "max_concurrent_streams": settings.client_max_streams,
            "initial_stream_window_size": _STREAM_WINDOW,
            "initial_connection_window_size": _CONNECTION_WINDOW,
        },
        "max_request_headers_kb": -(-settings.client_max_header // _KIB),
        "request_headers_timeout": seconds(settings.client_header_timeout),
        "stream_idle_timeout": seconds(settings.client_stream_idle_timeout),
        "request_timeout": "0s",
        "server_header_transformation": "PASS_THROUGH",
    }


_BUFFER: Final = 32 * 1024


def listener(edge: Edge, filters: Sequence[Json]) -> Json:
    """The listener with *filters*, one for all addresses, so that local limits count once."""
    first, *others = (listening(one) for one in edge.settings.listen)
    chain: Json = {"filters": [connection_manager(edge, filters)]}
    tls = listening_tls(edge.settings, edge.places)
    if tls is not None:
        chain["transport_socket"] = tls
    return {
        "name": "gateway",
        "address": first,
        "additional_addresses": [{"address": one} for one in others],
        "per_connection_buffer_limit_bytes": _BUFFER,
        "filter_chains": [chain],
    }
