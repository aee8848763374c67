"""Configurations for gateways that others run: nginx, Caddy, Traefik, Envoy, Istio.

options (checked) -> one module per gateway (its text). Values are checked and quoted as the syntax
of each gateway needs, so that no value can end the place it is put in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.gateway.templates.caddy import caddy_text
from headgate.gateway.templates.envoy import envoy_text, istio_text
from headgate.gateway.templates.nginx import nginx_text
from headgate.gateway.templates.options import GRPC_IN_KUBERNETES, Wanted, make_wanted
from headgate.gateway.templates.traefik import traefik_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.templates.options import OnFailure

__all__ = ["GATEWAYS", "Gateway", "Wanted", "gateway_named", "make_wanted"]


# Which gateways there is a configuration for, which options each has a use for, and why.


_OWN: Final = frozenset({"upstream", "listen", "server_name"})
_HTTP: Final = _OWN | {"service"}
_GRPC: Final = frozenset({"grpc", "rules", "timeout"})
_BY_HTTP: Final = "it asks over HTTP, at --service"
_BY_GRPC: Final = "it asks over gRPC, at --grpc"
_HAS_OWN: Final = "that is in its own resources"
_WHOLE: Final = "what is printed is whole as it is"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway: how it is called, what is printed for it, which options count for it, and for
    some of the others why they do not."""

    name: str
    text: Callable[[Wanted], str]
    options: frozenset[str]
    others: tuple[tuple[str, str], ...]
    closes_only: bool = False
    grpc: str | None = None
    """Where the service is if nobody says, if not on this machine."""

    def check(self, given: frozenset[str]) -> None:
        """Raise `OptionError` if one of the options *given* means nothing here."""
        for option in sorted(given - self.options):
            flag = f"--{option.replace('_', '-')}"
            why = dict(self.others)[option]
            raise OptionError(f"{flag} means nothing for {self.name}: {why}")

    def on_failure(self, asked: OnFailure | None) -> OnFailure:
        """What is done while the service does not answer; `OptionError` if it cannot be done."""
        if not self.closes_only:
            return asked or "open"
        if asked == "open":
            told = "refuses what it cannot ask about, and cannot be told otherwise"
            raise OptionError(f"--on-failure open: {self.name} {told}; say closed, or nothing")
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
        (("grpc", _BY_HTTP), ("timeout", "it waits for 30 seconds, always"), _FULL),
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
    raise OptionError(f"{name!r} is no gateway that is known here; expected one of {names}")
