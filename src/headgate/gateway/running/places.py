"""Where Envoy finds what it needs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.gateway.authorities import system_authorities
from headgate.gateway.envoy.values import Places
from headgate.gateway.running.envoy import admin_place
from headgate.gateway.running.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.gateway.running.run_directory import RunDirectory
    from headgate.gateway.settings import GatewaySettings


def places_of(settings: GatewaySettings, directory: RunDirectory, sockets: Sequence[str]) -> Places:
    """The places for a gateway in *directory* that asks a service at *sockets*.

    Raises `GatewayError` if an upstream is to be believed and nobody says whom to believe.
    """
    known = {"directory": str(directory.path), "admin": admin_place(settings, directory)}
    is_needed = any(one.is_tls for one in settings.upstream) and settings.upstream_ca is None
    authorities = system_authorities()
    if authorities is not None:
        return Places(**known, grpc=tuple(sockets), system_ca=authorities)
    if is_needed:
        raise GatewayError(
            "this machine has no file of the authorities that it believes, and an upstream is "
            "https; name one with --upstream-ca FILE"
        )
    return Places(**known, grpc=tuple(sockets))
