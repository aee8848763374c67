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
    from collections.abc import Callable, Iterable, Mapping

    from headgate.gateway.templates.options import OnFailure

__all__ = ["GATEWAYS", "Gateway", "TemplateOptions", "gateway_named", "template_options"]


_BY_HTTP: Final = {"grpc": "it uses HTTP; see --service"}
_BY_GRPC: Final = {"service": "it uses gRPC; see --grpc"}
_WHOLE: Final = {"full": "the printed configuration is always complete"}
_HAS_OWN: Final = "its own resources configure that"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway by name: its text, and the options that do not apply to it, each with the reason.

    With *closes_only* it cannot fail open. *grpc* is the address of the service by default, if it
    is not on this machine.
    """

    name: str
    text: Callable[[TemplateOptions], str]
    excluded: Mapping[str, str]
    closes_only: bool = False
    grpc: str | None = None

    def check(self, given: Iterable[str]) -> None:
        """Raise `OptionError` if one of the options *given* does not apply."""
        for option in sorted(given):
            if option in self.excluded:
                flag = f"--{option.replace('_', '-')}"
                reason = self.excluded[option]
                raise OptionError(f"{flag} does not apply to {self.name}: {reason}")

    def on_failure(self, chosen: OnFailure | None) -> OnFailure:
        """The behaviour while the service does not answer; `OptionError` if it is impossible."""
        if not self.closes_only:
            return chosen or "open"
        if chosen == "open":
            why = "always denies a request that it cannot check"
            raise OptionError(f"--on-failure open: {self.name} {why}; use closed, or leave it out")
        return "closed"


GATEWAYS: Final[tuple[Gateway, ...]] = (
    Gateway("nginx", nginx_text, _BY_HTTP),
    Gateway("caddy", caddy_text, _BY_HTTP | _WHOLE),
    Gateway(
        "traefik",
        traefik_text,
        _BY_HTTP | _WHOLE | {"timeout": "it always waits for 30 seconds"},
        closes_only=True,
    ),
    Gateway("envoy", envoy_text, _BY_GRPC | _WHOLE),
    Gateway(
        "istio",
        istio_text,
        _BY_GRPC | _WHOLE | dict.fromkeys(("listen", "server_name", "upstream"), _HAS_OWN),
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
