"""The one place where recordings call Python names of Headgate: a redesign edits it alone."""

from collections.abc import Sequence
from typing import Any

from headgate.cli import main
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Places
from headgate.gateway.settings import GatewaySettings
from headgate.gateway.upstreams import parse_upstream
from headgate.rules.reading import read_policy
from headgate.settings import Address

__all__ = ["envoy_files", "main"]


def envoy_files(policy: str, upstreams: Sequence[str], **settings: Any) -> dict[str, Any]:
    """The files that `headgate up` writes for Envoy, the rules by how they are decided, warnings."""
    if "listen" in settings:
        settings["listen"] = tuple(Address(*address) for address in settings["listen"])
    made = documents(
        read_policy(policy),
        GatewaySettings(upstream=tuple(map(parse_upstream, upstreams)), **settings),
        Places("/run/gateway", ("/run/gateway/grpc.sock",), "/run/gateway/admin.sock"),
    )
    return {
        "files": {"bootstrap.json": made.bootstrap, **made.discovered},
        "decided": {one.rule: one.decide for one in made.decided},
        "prose": [*(f"{one.rule}: {one.why}" for one in made.decided if one.why), *made.warnings],
    }
