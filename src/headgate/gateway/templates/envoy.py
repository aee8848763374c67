"""Envoy and Istio: configurations with which the service decides each request over RLS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.config import Address
from headgate.gateway.envoy.clusters import is_literal
from headgate.gateway.envoy.exact import DEBUG_ACTION, REMOTE_ADDRESS, all_lines, request_actions
from headgate.gateway.templates.options import UNAVAILABLE, filled, quoted
from headgate.policy.envoy_config.attributes import (
    ADDRESS,
    GATEWAY_DOMAIN,
    HOST,
    METHOD,
    OUTAGE,
    PATH,
    REFUSED,
    REPORT,
)

if TYPE_CHECKING:
    from headgate.config.gateway import Upstream
    from headgate.gateway.envoy.values import Json
    from headgate.gateway.templates.options import Report, TemplateOptions


CA: Final = "/etc/ssl/certs/ca-certificates.crt"
"""The certificates of authorities on Debian."""

_OPEN: Final = "failure_mode_deny: false      # Headgate is gone or too slow: allow"
_CLOSED: Final = """\
failure_mode_deny: true      # Headgate is gone or too slow: deny
status_on_error: {code: ServiceUnavailable}"""
_RESERVED: Final = frozenset({METHOD, PATH, HOST, ADDRESS})
"""The keys of every request: a header with such a name would be taken for one of them."""

_UNKNOWN: Final = "# Add a line for each other header that your rules read."
_KNOWN: Final = "# The headers that the rules read. A rule that reads another one needs a line."


def ratelimit_filter(options: TemplateOptions) -> str:
    """The filter that has Headgate decide every request."""
    entries = _entries(options)
    return filled(
        "envoy_filter.yaml",
        {
            "domain": GATEWAY_DOMAIN,
            "headers": _UNKNOWN if options.headers is None else _KNOWN,
            "debug": _item(DEBUG_ACTION),
            "entries": entries,
            "reports": "".join(_report(one, entries) for one in options.reports),
            "timeout": f"{options.timeout_ms / 1000:g}s",
            "failure": _OPEN if options.is_open else _CLOSED,
        },
    )


def service_cluster(options: TemplateOptions) -> str:
    """The cluster of the Headgate service."""
    return filled(
        "envoy_cluster.yaml",
        {
            "type": cluster_type(options.grpc),
            "timeout": f"{options.timeout_ms / 1000:g}s",
            "address": address_text(options.grpc),
        },
    )


def cluster_type(address: Address) -> str:
    """The way in which Envoy resolves *address*."""
    return "STATIC" if address.is_unix or is_literal(address.host) else "STRICT_DNS"


def address_text(address: Address) -> str:
    """*address* in the form of Envoy, on one line."""
    if address.is_unix:
        return f"{{pipe: {{path: {quoted(address.path)}}}}}"
    place = f"address: {quoted(address.host)}, port_value: {address.port}"
    return f"{{socket_address: {{{place}}}}}"


def _entries(options: TemplateOptions) -> str:
    """The actions that describe a request to Headgate, one a line.

    An action for a header sends its first line alone, and an app may read another one.
    """
    headers = [name for name in options.sent_headers if name not in _RESERVED]
    actions = [*request_actions(REMOTE_ADDRESS), *map(all_lines, headers)]
    return "\n".join(map(_item, actions))


def _item(action: Json) -> str:
    return f"- {json.dumps(action)}"


def _report(report: Report, entries: str) -> str:
    header = report.header
    amount = "%BYTES_SENT%" if header is None else f"%RESPONSE_HEADER({header})%"
    return filled(
        "envoy_report.yaml",
        {
            "report": quoted(REPORT),
            "rule": quoted(report.rule),
            "refused": quoted(REFUSED),
            "entries": entries,
            "amount": quoted(amount),
        },
    )


def envoy_text(options: TemplateOptions) -> str:
    """A bootstrap, in YAML."""
    upstream = options.upstream
    address = Address(upstream.host, upstream.port, upstream.path)
    return filled(
        "envoy.yaml",
        {
            "closed": ""
            if options.is_open
            else filled("envoy_closed.yaml", {"body": quoted(UNAVAILABLE)}),
            "refused": quoted(REFUSED),
            "outage": quoted(OUTAGE),
            "listen": address_text(options.listen),
            "domain": quoted(options.server_name or "*"),
            "filter": listed(ratelimit_filter(options)),
            "service": listed(service_cluster(options)),
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
    is_address = is_literal(upstream.host)
    return filled(
        "envoy_tls.yaml",
        {
            "sni": "" if is_address else f"sni: {quoted(upstream.host)}",
            "ca": CA,
            "san": "IP_ADDRESS" if is_address else "DNS",
            "host": quoted(upstream.host),
        },
    )


def istio_text(options: TemplateOptions) -> str:
    """An EnvoyFilter for the ingress gateway of Istio, in YAML."""
    return filled(
        "istio.yaml", {"filter": ratelimit_filter(options), "service": service_cluster(options)}
    )
