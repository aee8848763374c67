"""Where clients connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.addresses import listening
from headgate.gateway.envoy.discovery import discovered
from headgate.gateway.envoy.edge import connection_manager
from headgate.gateway.envoy.tls import listening_tls
from headgate.gateway.envoy.values import typed

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Edge, Json

_BUFFER: Final = 32 * 1024


def listeners(edge: Edge) -> Json:
    """The file of listeners: one, for all addresses, so that what a filter counts by itself is
    counted once."""
    first, *others = (listening(one) for one in edge.settings.listen)
    chain: Json = {"filters": [connection_manager(edge)]}
    tls = listening_tls(edge.settings, edge.places)
    if tls is not None:
        chain["transport_socket"] = tls
    made = typed(
        "envoy.config.listener.v3.Listener",
        name="gateway",
        address=first,
        additional_addresses=[{"address": one} for one in others],
        per_connection_buffer_limit_bytes=_BUFFER,
        filter_chains=[chain],
    )
    return discovered([made])
