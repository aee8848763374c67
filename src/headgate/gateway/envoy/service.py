"""How filters name the decision service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json

SERVICE: Final = "headgate"
"""The cluster of the service's gRPC."""


def service() -> Json:
    """The service, as filters ask it."""
    return {"envoy_grpc": {"cluster_name": SERVICE}}
