"""Configurations of Envoy with nothing in them that is not needed, to hold the gateway's beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.envoy.values import Documents
from tests.support.servers.envoy import cluster, http_listener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.gateway.ways import Way

_FILTERS: Final = "type.googleapis.com/envoy.extensions.filters.http"
_HEADER: Final = "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
_API: Final = "(?i)/api(/.*)?"
_MANY: Final = 100_000_000
_TOLD: Final = (
    "retry-after",
    "content-type",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit",
    "ratelimit-policy",
)
Json = dict[str, Any]


def documents(way: Way, *, port: int, upstream: int, grpc: str, http: str, limit: int) -> Documents:
    """All that Envoy needs to decide in this *way*, with *limit* requests for each key.

    *grpc* and *http* are the service's sockets, or `host:port`.
    """
    filters = _filters(way, limit)
    host = {"routes": [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]}
    listener = http_listener(port, virtual_host=host, filters=filters)
    listener["filter_chains"][0]["filters"][0]["typed_config"]["use_remote_address"] = True
    clusters = [
        cluster("upstream", upstream),
        _at(cluster("grpc", 1, http2=True), grpc),
        _at(cluster("http", 1), http),
    ]
    return Documents({"static_resources": {"listeners": [listener], "clusters": clusters}})


def _filters(way: Way, limit: int) -> list[Mapping[str, Any]]:
    if way.decide is None:
        return []
    if way.decide == "local":
        return [_local(limit)]
    if way.decide == "quota":
        return [_QUOTA, _local(_MANY)]
    return [_EXT_AUTHZ if way.asks == "ext_authz" else _RLS]


def _at(made: Json, place: str) -> Json:
    """The cluster *made*, at a socket or `host:port`."""
    host, colon, port = place.rpartition(":")
    where: Json = (
        {"socket_address": {"address": host, "port_value": int(port)}}
        if colon
        else {"pipe": {"path": place}}
    )
    made["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = where
    return made


def _local(limit: int) -> Json:
    bucket = {"max_tokens": limit, "tokens_per_fill": limit, "fill_interval": "1s"}
    everybody = {"max_tokens": 4 * 10**9, "tokens_per_fill": 4 * 10**9, "fill_interval": "1s"}
    matched = {"name": ":path", "string_match": {"safe_regex": {"regex": _API}}}
    always = {"default_value": {"numerator": 100}}
    return {
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": f"{_FILTERS}.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "local",
            "filter_enabled": always,
            "filter_enforced": always,
            "token_bucket": everybody,
            "max_dynamic_descriptors": 10_000,
            "always_consume_default_token_bucket": False,
            "rate_limits": [
                {
                    "actions": [
                        {
                            "header_value_match": {
                                "descriptor_key": "rule",
                                "descriptor_value": "per-key",
                                "headers": [matched],
                            }
                        },
                        _entry("x-api-key", "key"),
                    ]
                }
            ],
            "descriptors": [
                {
                    "entries": [{"key": "rule", "value": "per-key"}, {"key": "key"}],
                    "token_bucket": bucket,
                }
            ],
        },
    }


def _entry(header: str, key: str) -> Json:
    return {"request_headers": {"header_name": header, "descriptor_key": key}}


def _header(name: str) -> Json:
    return {"name": name, "typed_config": {"@type": _HEADER, "header_name": name}}


_RLS: Final[Json] = {
    "name": "envoy.filters.http.ratelimit",
    "typed_config": {
        "@type": f"{_FILTERS}.ratelimit.v3.RateLimit",
        "domain": "headgate",
        "timeout": "2s",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "grpc"}},
        },
        "rate_limits": [
            {
                "actions": [
                    _entry(":method", "method"),
                    _entry(":path", "path"),
                    _entry(":authority", "host"),
                    {"remote_address": {}},
                    _entry("x-api-key", "x-api-key"),
                ]
            }
        ],
    },
}
_SHOWN: Final[Json] = {"patterns": [{"exact": name} for name in _TOLD]}
_EXT_AUTHZ: Final[Json] = {
    "name": "envoy.filters.http.ext_authz",
    "typed_config": {
        "@type": f"{_FILTERS}.ext_authz.v3.ExtAuthz",
        "http_service": {
            "server_uri": {"uri": "http://headgate", "cluster": "http", "timeout": "2s"},
            "path_prefix": "/v1/authorize",
            "authorization_response": {
                "allowed_client_headers": _SHOWN,
                "allowed_client_headers_on_success": _SHOWN,
            },
        },
        "allowed_headers": {"patterns": [{"exact": "x-api-key"}, {"exact": "x-forwarded-for"}]},
    },
}
_BUCKET: Final[Json] = {
    "name": "bucket",
    "typed_config": {
        "@type": f"{_FILTERS}.rate_limit_quota.v3.RateLimitQuotaBucketSettings",
        "bucket_id_builder": {
            "bucket_id_builder": {
                "headgate.rule": {"string_value": "per-key"},
                "x-api-key": {"custom_value": _header("x-api-key")},
            }
        },
        "reporting_interval": "5s",
        "no_assignment_behavior": {"fallback_rate_limit": {"blanket_rule": "ALLOW_ALL"}},
    },
}
_QUOTA: Final[Json] = {
    "name": "envoy.filters.http.rate_limit_quota",
    "typed_config": {
        "@type": f"{_FILTERS}.rate_limit_quota.v3.RateLimitQuotaFilterConfig",
        "domain": "headgate",
        "rlqs_server": {"envoy_grpc": {"cluster_name": "grpc"}},
        "bucket_matchers": {
            "matcher_list": {
                "matchers": [
                    {
                        "predicate": {
                            "single_predicate": {
                                "input": _header(":path"),
                                "value_match": {"safe_regex": {"google_re2": {}, "regex": _API}},
                            }
                        },
                        "on_match": {"action": _BUCKET},
                    }
                ]
            }
        },
    },
}
