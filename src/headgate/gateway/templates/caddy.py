"""Caddy: `forward_auth` written out, so that clients see the figures of what passes too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.templates.options import UNAVAILABLE, filled

if TYPE_CHECKING:
    from headgate.config.gateway import Upstream
    from headgate.gateway.templates.options import Wanted

_SITE: Final = """\
# Headgate decides, Caddy obeys. Caddy 2.6 or newer:
#   caddy run --adapter caddyfile --config FILE
# For HTTPS by Caddy itself put `example.org {` in place of the address, and remove `bind`.
<<unreported>>
http://<<server_name>>:<<port>> {
	bind <<host>>

	route {
		# What `forward_auth` does, written out: ask Headgate about the request as it is.
		vars headgate asked
		reverse_proxy <<service>> {
			method GET
			rewrite /v1/authorize
			header_up X-Forwarded-Method {method}
			header_up X-Forwarded-Uri {uri}
			# What a client says of the request does not count; X-Forwarded-For is Caddy's.
			header_up -X-Original-Uri
			header_up -X-Original-Method
			header_up -X-Real-Ip
			header_up -Connection
			header_up -Upgrade
			transport http {
				dial_timeout <<timeout>>ms
				response_header_timeout <<answer_timeout>>ms
				keepalive 60s # less than the 75 s after which Headgate closes
			}

			# Go on, and tell the client the figures. Anything else is passed on as it is: the
			# 429 with its body and Retry-After, the 503 of a rule that fails closed.
			@allowed status 2xx
			handle_response @allowed {
				vars headgate allowed
				@draft expression {http.reverse_proxy.header.Ratelimit} != null
				header @draft {
					RateLimit {http.reverse_proxy.header.Ratelimit}
					RateLimit-Policy {http.reverse_proxy.header.Ratelimit-Policy}
				}
				@figures expression {http.reverse_proxy.header.X-Ratelimit-Limit} != null
				header @figures {
					X-RateLimit-Limit {http.reverse_proxy.header.X-Ratelimit-Limit}
					X-RateLimit-Remaining {http.reverse_proxy.header.X-Ratelimit-Remaining}
					X-RateLimit-Reset {http.reverse_proxy.header.X-Ratelimit-Reset}
				}
				# Only for requests with a debug token: how they were decided, to be kept by nobody.
				@debugged expression {http.reverse_proxy.header.Headgate-Decision} != null
				header @debugged {
					Headgate-Decision {http.reverse_proxy.header.Headgate-Decision}
					Cache-Control no-store
				}
			}
		}

		# Your application.
		reverse_proxy <<upstream>>
	}

	# Headgate is gone or too slow: <<failing>>.
	handle_errors {
		@undecided vars headgate asked
		handle @undecided {
			<<failure>>
		}
	}
}
"""
_CLOSED: Final = """\
header {
	Content-Type application/json
	Retry-After 1
	Cache-Control no-store
}
respond `<<unavailable>>` 503
"""


def caddy_text(wanted: Wanted) -> str:
    """A Caddyfile."""
    upstream = _server(wanted.upstream)
    return filled(
        _SITE,
        {
            "server_name": wanted.server_name or "",
            "port": str(wanted.listen.port),
            "host": wanted.listen.host,
            "service": _server(wanted.service),
            "upstream": upstream,
            "timeout": str(wanted.timeout_ms),
            "answer_timeout": str(wanted.answer_timeout_ms),
            "unreported": wanted.unreported,
            "failing": "go on without it" if wanted.is_open else "503, to everything",
            "failure": f"reverse_proxy {upstream}"
            if wanted.is_open
            else filled(_CLOSED, {"unavailable": UNAVAILABLE}),
        },
    )


def _server(server: Upstream) -> str:
    return f"unix/{server.path}" if server.path else server.url
