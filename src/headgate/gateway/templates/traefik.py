"""Traefik, by `forwardAuth`, for its file provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.gateway.templates.options import filled, quoted
from headgate.responses.debug import DEBUG

if TYPE_CHECKING:
    from headgate.gateway.templates.options import Wanted

_DYNAMIC: Final = """\
# Headgate decides, Traefik obeys. Traefik 3, by its file provider:
#   traefik --entryPoints.web.address=<<listen>> --providers.file.filename=FILE
# While Headgate is gone Traefik answers 500 (after 30 s if it hangs), and cannot be told otherwise.
# Clients see no figures of requests that pass: authResponseHeaders is about the application. With a
# debug token, too, only refusals tell how they were decided.
<<unreported>>
http:
  middlewares:
    headgate:
      forwardAuth:
        address: <<address>>
        # What is said of a request does not count: Headgate sees the address that connects.
        # Behind a load balancer say true, with the address of that in the rules' identity.ip and in
        # entryPoints.web.forwardedHeaders.trustedIPs; it must remove X-Forwarded-Uri and -Method
        # that clients send.
        trustForwardHeader: false
        <<headers>>
  routers:
    headgate:
      rule: <<rule>>
      entryPoints: [web]
      service: headgate-upstream
      middlewares: [headgate]
  services:
    headgate-upstream:
      loadBalancer:
        servers:
          - url: <<upstream>>
"""
_HEADERS: Final = """\
# What Headgate sees of a request, besides X-Forwarded-*: the headers that the rules look at, and
# debug tokens.
# A rule that looks at another one needs it here.
authRequestHeaders: [<<names>>]
"""


def traefik_text(wanted: Wanted) -> str:
    """A file for the file provider, in YAML. Raises `OptionError` for unix sockets."""
    for flag, server in (("--service", wanted.service), ("--upstream", wanted.upstream)):
        if server.path:
            told = "Traefik cannot ask at a unix socket; expected http://host:port"
            raise OptionError(f"{flag} {server.url}: {told}")
    headers = ""
    if wanted.headers:
        names = ", ".join(map(quoted, (*wanted.headers, DEBUG.lower())))
        headers = filled(_HEADERS, {"names": names})
    return filled(
        _DYNAMIC,
        {
            "listen": str(wanted.listen),
            "unreported": wanted.unreported,
            "address": quoted(f"{wanted.service.url}/v1/authorize"),
            "headers": headers,
            "rule": quoted(_rule(wanted.server_name)),
            "upstream": quoted(wanted.upstream.url),
        },
    )


def _rule(name: str | None) -> str:
    if name is None:
        return "PathPrefix(`/`)"
    if name.startswith("*."):
        below = name.removeprefix("*.").replace(".", r"\.")
        return rf"HostRegexp(`^[^.]+\.{below}$`)"
    return f"Host(`{name}`)"
