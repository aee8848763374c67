"""nginx, by `auth_request`.

What it knows is 2xx, 401 and 403, so refusals are asked for as 403 and turned into 429 here. It
drops the body of an answer: the JSON is made again from the headers that came with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.templates.options import UNAVAILABLE, filled

if TYPE_CHECKING:
    from headgate.config.gateway import Upstream
    from headgate.gateway.templates.options import Wanted

_SITE: Final = """\
# Headgate decides, nginx obeys. nginx 1.15.3 or newer, with the module auth_request.
<<where>>
<<unreported>>
# The map blocks and upstream blocks belong into http { }, the location blocks into your server { }.

# Where `headgate serve` is. Names are looked up when nginx starts.
upstream headgate {
    server <<service>>;
    keepalive 32;
    keepalive_timeout 60s;       # less than the 75 s after which Headgate closes
}

# Your application.
upstream headgate_upstream {
    server <<upstream>>;
    keepalive 32;
}

# For WebSockets; without an upgrade, connections to the application are kept.
map $http_upgrade $headgate_connection {
    ""      "";
    default upgrade;
}

# What is said to a client that is refused, from the headers that Headgate answered with.
map $headgate_ratelimit $headgate_limit {
    default "";
    '~(?:^|, )"(?<headgate_rule>[A-Za-z0-9._-]+)(?:/[0-9]+)?";r=0(?:[;,]|$)'
            ', "limit": "$headgate_rule"';
}
map $headgate_retry_after $headgate_wait {
    ""      "";
    default ', "retry_after_ms": ${headgate_retry_after}000, "retry_after": $headgate_retry_after';
}
map $headgate_retry_after $headgate_message {
    ""      "Too many requests. Try again later.";
    default "Too many requests. Try again in $headgate_retry_after seconds.";
}

server {
    listen <<listen>>;
    server_name <<server_name>>;
    # Less than Headgate takes (max_header: 32 kB): no request is too large to be asked about.
    large_client_header_buffers 4 7k;

    location / {
        # Ask first. An internal redirect (try_files, rewrite, error_page) into a location with
        # auth_request asks, and charges, again: have it where requests end up.
        auth_request /_headgate;
        auth_request_set $headgate_status $upstream_status;
        auth_request_set $headgate_type $upstream_http_content_type;
        auth_request_set $headgate_retry_after $upstream_http_retry_after;
        auth_request_set $headgate_ratelimit $upstream_http_ratelimit;
        auth_request_set $headgate_policy $upstream_http_ratelimit_policy;
        auth_request_set $headgate_x_limit $upstream_http_x_ratelimit_limit;
        auth_request_set $headgate_x_remaining $upstream_http_x_ratelimit_remaining;
        auth_request_set $headgate_x_reset $upstream_http_x_ratelimit_reset;
        auth_request_set $headgate_decision $upstream_http_headgate_decision;
        auth_request_set $headgate_cache $upstream_http_cache_control;
        error_page 403 = @headgate_refused;
        error_page 500 = @headgate_down;
        proxy_intercept_errors off;      # a 403 or 500 of your application stays what it is

        # What clients see. A location with add_header inherits none: repeat your own here.
        add_header RateLimit $headgate_ratelimit always;
        add_header RateLimit-Policy $headgate_policy always;
        add_header X-RateLimit-Limit $headgate_x_limit always;
        add_header X-RateLimit-Remaining $headgate_x_remaining always;
        add_header X-RateLimit-Reset $headgate_x_reset always;
        # Only for requests with a debug token: how they were decided, and no-store.
        add_header Headgate-Decision $headgate_decision always;
        add_header Cache-Control $headgate_cache always;

        proxy_pass <<upstream_scheme>>://headgate_upstream;
        proxy_http_version 1.1;
        proxy_set_header Host $http_host;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $headgate_connection;
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto $scheme;
        <<upstream_tls>>
    }

    # The question to Headgate; no client can reach it.
    location = /_headgate {
        internal;
        proxy_pass <<service_scheme>>://headgate/v1/authorize?deny=403;
        proxy_http_version 1.1;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_set_header Connection "";
        proxy_set_header Upgrade "";
        proxy_set_header Expect "";
        # Which request it is about, and whose: never what the client says of it.
        proxy_set_header Host $http_host;
        proxy_set_header X-Original-URI $request_uri;
        proxy_set_header X-Original-Method $request_method;
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Uri "";
        proxy_set_header X-Forwarded-Method "";
        <<accept>>
        # The headers of an answer tell of every rule that applied. Of more than there is room for
        # (4 kB if nobody says otherwise) nginx makes a 502: no decision.
        proxy_buffer_size 32k;
        proxy_buffers 4 32k;
        proxy_connect_timeout <<timeout>>ms;
        proxy_send_timeout <<timeout>>ms;
        proxy_read_timeout <<answer_timeout>>ms;
        proxy_next_upstream error;       # not after a timeout: it may have been charged
        proxy_intercept_errors off;      # what Headgate answers counts, a 503 of a rule too
        <<service_tls>>
        <<failure>>
    }
    <<open>>

    # Over a limit.
    location @headgate_refused {
        if ($headgate_status !~ "403$") { return 403; }      # a `deny` of yours, not Headgate
        <<misled>>
        default_type application/json;
        add_header Retry-After $headgate_retry_after always;
        add_header RateLimit $headgate_ratelimit always;
        add_header RateLimit-Policy $headgate_policy always;
        add_header X-RateLimit-Limit $headgate_x_limit always;
        add_header X-RateLimit-Remaining $headgate_x_remaining always;
        add_header X-RateLimit-Reset $headgate_x_reset always;
        add_header Headgate-Decision $headgate_decision always;
        add_header Cache-Control no-store always;
        return 429 '{"error": "rate_limit_exceeded", "message": "$headgate_message"$headgate_limit$headgate_wait}';
    }

    # No decision: <<down>>.
    location @headgate_down {
        if ($headgate_status ~ "^$|2[0-9][0-9]$") { return 500; }    # not Headgate's doing
        if ($headgate_status ~ "4[0-9][0-9]$") { return 400; }       # it made no sense: see its log
        default_type application/json;
        add_header Retry-After 1 always;
        add_header Headgate-Decision $headgate_decision always;
        add_header Cache-Control no-store always;
        return 503 '<<unavailable>>';
    }
}
"""  # noqa: E501 - a text of nginx does not go on in the next line

_OPEN: Final = """\

# Headgate is gone or too slow: go on without it.
location @headgate_open {
    return 204;
}"""

_FULL: Final = """\
# Runs as it is, as any user:
#   nginx -p DIRECTORY -c FILE -g 'daemon off;'       (FILE with its whole path)
# What nginx writes goes into DIRECTORY.
worker_processes auto;
error_log stderr;
pid headgate-nginx.pid;

events {
    worker_connections 1024;
}

http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;

    <<site>>
}
"""

_TLS: Final = """\
proxy_ssl_server_name on;
proxy_ssl_name {host};
proxy_ssl_verify on;
proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;   # where Debian has it"""


def nginx_text(wanted: Wanted) -> str:
    """A file for `conf.d`, or a whole `nginx.conf`."""
    # Rules that look at Accept must see the client's; then a 403 cannot be told from a refusal.
    is_accept_seen = "accept" in (wanted.headers or ())
    site = filled(
        _SITE,
        {
            "unavailable": UNAVAILABLE,
            "where": "" if wanted.is_full else _WHERE,
            "unreported": wanted.unreported,
            "service": _server(wanted.service),
            "service_scheme": _scheme(wanted.service),
            "service_tls": _tls(wanted.service),
            "upstream": _server(wanted.upstream),
            "upstream_scheme": _scheme(wanted.upstream),
            "upstream_tls": _tls(wanted.upstream),
            "listen": str(wanted.listen),
            "server_name": wanted.server_name or "_",
            "timeout": str(wanted.timeout_ms),
            "answer_timeout": str(wanted.answer_timeout_ms),
            "accept": "" if is_accept_seen else _ACCEPT,
            "misled": "" if is_accept_seen else _MISLED,
            "failure": "error_page 502 504 = @headgate_open;" if wanted.is_open else "",
            "open": _OPEN if wanted.is_open else "",
            "down": _DOWN_OPEN if wanted.is_open else _DOWN_CLOSED,
        },
    )
    return filled(_FULL, {"site": site}) if wanted.is_full else site


_WHERE: Final = """\
# For a directory that http { } includes, as /etc/nginx/conf.d; then: nginx -t && nginx -s reload"""
_ACCEPT: Final = "proxy_set_header Accept application/json;    # refusals are JSON, errors are not"
_MISLED: Final = """\
# nginx is not among Headgate's `gateways`: Headgate does not take its word, and says so.
if ($headgate_type != "application/json") { return 503; }"""
_DOWN_OPEN: Final = "a rule fails closed, or Headgate did not understand the question"
_DOWN_CLOSED: Final = "Headgate is gone, too slow, or a rule fails closed"


def _server(server: Upstream) -> str:
    if server.path:
        return f"unix:{server.path}"
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


def _scheme(server: Upstream) -> str:
    return "https" if server.is_tls else "http"


def _tls(server: Upstream) -> str:
    return _TLS.format(host=server.host) if server.is_tls else ""
