"""nginx, Caddy and Traefik: gateways that check each request with the service over HTTP.

nginx uses `auth_request`. It supports only 2xx, 401 and 403, so the service denies with 403
and nginx responds with 429. It drops the body of the service's response, so the JSON is built again
from the headers.

Caddy uses `forward_auth` written out, so that clients also see the figures of allowed requests.

Traefik uses `forwardAuth` of its file provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.gateway.templates.options import UNAVAILABLE, filled, quoted
from headgate.responses.debug import DEBUG

if TYPE_CHECKING:
    from headgate.config.gateway import Upstream
    from headgate.gateway.templates.options import TemplateOptions

_OPEN: Final = """\

# Headgate is unavailable or too slow: allow the request.
location @headgate_open {
    return 204;
}"""


_TLS: Final = """\
proxy_ssl_server_name on;
proxy_ssl_name {host};
proxy_ssl_verify on;
proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;   # where Debian has it"""


def nginx_text(options: TemplateOptions) -> str:
    """A file for `conf.d`, or a whole `nginx.conf`."""
    # If rules read Accept, the service gets the client's header, so its errors may be JSON too:
    # then nginx cannot tell its 403 for untrusted gateways from a denial.
    is_accept_seen = "accept" in (options.headers or ())
    site = filled(
        "nginx_site.conf",
        {
            "unavailable": UNAVAILABLE,
            "where": "" if options.is_full else _WHERE,
            "unreported": options.unreported,
            "service": _nginx_address(options.service),
            "service_scheme": _scheme(options.service),
            "service_tls": _tls(options.service),
            "upstream": _nginx_address(options.upstream),
            "upstream_scheme": _scheme(options.upstream),
            "upstream_tls": _tls(options.upstream),
            "listen": str(options.listen),
            "server_name": options.server_name or "_",
            "timeout": str(options.timeout_ms),
            "answer_timeout": str(options.answer_timeout_ms),
            "accept": "" if is_accept_seen else _ACCEPT,
            "untrusted": "" if is_accept_seen else _UNTRUSTED,
            "failure": "error_page 502 504 = @headgate_open;" if options.is_open else "",
            "open": _OPEN if options.is_open else "",
            "down": _DOWN_OPEN if options.is_open else _DOWN_CLOSED,
        },
    )
    return filled("nginx.conf", {"site": site}) if options.is_full else site


_WHERE: Final = """\
# Put this file into a directory that http { } includes, such as /etc/nginx/conf.d. Then run:
#   nginx -t && nginx -s reload"""
_ACCEPT: Final = "proxy_set_header Accept application/json;    # refusals are JSON, errors are not"
_UNTRUSTED: Final = """\
# Not a denial: nginx is not in Headgate's setting `gateways`, so Headgate does not trust it.
if ($headgate_type != "application/json") { return 503; }"""
_DOWN_OPEN: Final = "a rule fails closed, or Headgate rejected the request as invalid"
_DOWN_CLOSED: Final = "Headgate is unavailable or too slow, or a rule fails closed"


def _nginx_address(server: Upstream) -> str:
    if server.path:
        return f"unix:{server.path}"
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


def _scheme(server: Upstream) -> str:
    return "https" if server.is_tls else "http"


def _tls(server: Upstream) -> str:
    return _TLS.format(host=server.host) if server.is_tls else ""


def caddy_text(options: TemplateOptions) -> str:
    """A Caddyfile."""
    upstream = _caddy_address(options.upstream)
    return filled(
        "caddy.caddyfile",
        {
            "server_name": options.server_name or "",
            "port": str(options.listen.port),
            "host": options.listen.host,
            "service": _caddy_address(options.service),
            "upstream": upstream,
            "timeout": str(options.timeout_ms),
            "answer_timeout": str(options.answer_timeout_ms),
            "unreported": options.unreported,
            "failing": "allow the request" if options.is_open else "deny it with 503",
            "failure": f"reverse_proxy {upstream}"
            if options.is_open
            else filled("caddy_closed.caddyfile", {"unavailable": UNAVAILABLE}),
        },
    )


def _caddy_address(server: Upstream) -> str:
    return f"unix/{server.path}" if server.path else server.url


def traefik_text(options: TemplateOptions) -> str:
    """A file for the file provider, in YAML. Raises `OptionError` for unix sockets."""
    for flag, server in (("--service", options.service), ("--upstream", options.upstream)):
        if server.path:
            reason = "Traefik cannot use a unix socket; expected http://host:port"
            raise OptionError(f"{flag} {server.url}: {reason}")
    headers = ""
    if options.headers:
        names = ", ".join(map(quoted, (*options.headers, DEBUG.lower())))
        headers = filled("traefik_headers.yaml", {"names": names})
    return filled(
        "traefik.yaml",
        {
            "listen": str(options.listen),
            "unreported": options.unreported,
            "address": quoted(f"{options.service.url}/v1/authorize"),
            "headers": headers,
            "rule": quoted(_traefik_rule(options.server_name)),
            "upstream": quoted(options.upstream.url),
        },
    )


def _traefik_rule(name: str | None) -> str:
    if name is None:
        return "PathPrefix(`/`)"
    if name.startswith("*."):
        below = name.removeprefix("*.").replace(".", r"\.")
        return rf"HostRegexp(`^[^.]+\.{below}$`)"
    return f"Host(`{name}`)"
