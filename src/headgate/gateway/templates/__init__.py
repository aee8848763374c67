"""Configurations for gateways that users run themselves: nginx, Caddy, Traefik, Envoy, Istio.

`files` has the texts with places for values. `options` checks the values, `http_gateways` and
`envoy` fill them in, quoted as each syntax needs, so that no value can end its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.gateway.templates.envoy import envoy_text, istio_text
from headgate.gateway.templates.http_gateways import caddy_text, nginx_text, traefik_text
from headgate.gateway.templates.options import GRPC_IN_KUBERNETES, TemplateOptions, template_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.templates.options import OnFailure

__all__ = ["GATEWAYS", "Gateway", "TemplateOptions", "gateway_named", "template_options"]


_OWN: Final = frozenset({"upstream", "listen", "server_name"})
_HTTP: Final = _OWN | {"service"}
_GRPC: Final = frozenset({"grpc", "rules", "timeout"})
_BY_HTTP: Final = "it uses HTTP; see --service"
_BY_GRPC: Final = "it uses gRPC; see --grpc"
_HAS_OWN: Final = "its own resources configure that"
_WHOLE: Final = "the printed configuration is always complete"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway by name: its text, the options that apply to it, and why others do not."""

    name: str
    text: Callable[[TemplateOptions], str]
    options: frozenset[str]
    others: tuple[tuple[str, str], ...]
    closes_only: bool = False
    grpc: str | None = None
    """The service's address by default, if it is not on this machine."""

    def check(self, given: frozenset[str]) -> None:
        """Raise `OptionError` if one of the options *given* does not apply."""
        for option in sorted(given - self.options):
            flag = f"--{option.replace('_', '-')}"
            why = dict(self.others)[option]
            raise OptionError(f"{flag} does not apply to {self.name}: {why}")

    def on_failure(self, chosen: OnFailure | None) -> OnFailure:
        """The behaviour while the service does not answer; `OptionError` if it is impossible."""
        if not self.closes_only:
            return chosen or "open"
        if chosen == "open":
            why = "always denies a request that it cannot check"
            raise OptionError(f"--on-failure open: {self.name} {why}; use closed, or leave it out")
        return "closed"


_FULL: Final = ("full", _WHOLE)
GATEWAYS: Final[tuple[Gateway, ...]] = (
    Gateway(
        "nginx",
        nginx_text,
        _HTTP | {"timeout", "full", "rules"},
        (("grpc", _BY_HTTP),),
    ),
    Gateway(
        "caddy",
        caddy_text,
        _HTTP | {"timeout", "rules"},
        (("grpc", _BY_HTTP), _FULL),
    ),
    Gateway(
        "traefik",
        traefik_text,
        _HTTP | {"rules"},
        (("grpc", _BY_HTTP), ("timeout", "it always waits for 30 seconds"), _FULL),
        closes_only=True,
    ),
    Gateway("envoy", envoy_text, _OWN | _GRPC, (("service", _BY_GRPC), _FULL)),
    Gateway(
        "istio",
        istio_text,
        _GRPC,
        (("service", _BY_GRPC), *((one, _HAS_OWN) for one in sorted(_OWN)), _FULL),
        grpc=GRPC_IN_KUBERNETES,
    ),
)


def gateway_named(name: str) -> Gateway:
    """The gateway *name*. Raises `OptionError`, with all that there are."""
    for one in GATEWAYS:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in GATEWAYS)
    raise OptionError(f"unknown gateway {name!r}; expected one of {names}")
