"""The `Host` of requests to the API: protection against DNS rebinding.

A web page may let its own name point to 127.0.0.1; the browser of somebody on this machine then
takes the service for a part of that page, which can read the API and send it anything. Such
requests have the page's name as their `Host`, so only names that no page can have are accepted.

- The check is for listeners on loopback, where a program trusts who reaches it. It is for all TCP
  listeners if `allowed_hosts` has names. Over TLS the certificate does the same.
- An address is accepted: a browser that is led here has a name. So are requests without a `Host`.
- `/v1/authorize` is not checked: gateways send it the `Host` of the request that they ask about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.policy.conditions import normalised_host, wildcards
from headgate.policy.identity.address import read_address
from headgate.service.http.replies import RejectedError, problem

if TYPE_CHECKING:
    from headgate.service.http.replies import HttpOptions, Scope

OWN_NAMES: Final = ("localhost", "*.localhost", "host.docker.internal", "host.containers.internal")
"""The names of this machine for its own programs and containers; they cannot be registered."""

ANY: Final = "*"

_CACHED: Final = 1024
"""Hosts whose check is cached."""

_LONGEST_CACHED: Final = 256
"""Bytes of the longest host whose check is cached: no name has more."""

_LOOPBACK: Final = {"localhost": ("127.0.0.1", "::1")}
_DEEPEST: Final = 8
"""The most labels of a name in a wildcard."""


class AllowedHosts:
    """Decides which hosts requests may name, and caches it."""

    def __init__(self, options: HttpOptions) -> None:
        self._names = {*OWN_NAMES, *options.allowed_hosts}
        self._is_everywhere = bool(options.allowed_hosts)
        self._is_off = ANY in options.allowed_hosts
        self._listeners = {
            address for host in options.loopback for address in _LOOPBACK.get(host, (host,))
        }
        self._known: dict[bytes, bool] = {}

    def check(self, scope: Scope) -> None:
        """Raise `RejectedError` (403) if the request names a host that is not allowed."""
        server = scope.get("server")
        if self._is_off or server is None or scope.get("scheme") == "https":
            return
        if not self._is_everywhere and server[0] not in self._listeners:
            return
        for name, value in scope["headers"]:
            if name == b"host":
                allowed = self._known.get(value)
                if allowed is None:
                    allowed = self._decide(value)
                if not allowed:
                    raise _rejected(value)

    def _decide(self, value: bytes) -> bool:
        host = normalised_host(value.decode("latin-1"))
        allowed = (
            not host
            or read_address(host) is not None
            or not self._names.isdisjoint((host, *wildcards(host, _DEEPEST)))
        )
        if len(value) <= _LONGEST_CACHED:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[value] = allowed
        return allowed


def _rejected(value: bytes) -> RejectedError:
    host = ascii(value.decode("latin-1")[:80])
    return RejectedError(
        problem(
            403,
            f"the host {host} is not a name of this service: add it to the setting allowed_hosts, "
            "or call the service by localhost or its address",
        )
    )
