"""A line of JSON for every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.values import extension

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json
    from headgate.gateway.settings import GatewaySettings

_STDOUT: Final = "-"
_FIELDS: Final = {
    "time": "%START_TIME%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%PATH(NQ)%",
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "why": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "ms": "%DURATION%",
    "upstream": "%UPSTREAM_CLUSTER%",
    "request_id": "%REQ(X-REQUEST-ID)%",
}
"""No query and no other header: secrets stand there."""


def access_logs(settings: GatewaySettings) -> list[Json]:
    """The log that is asked for, if one is."""
    if settings.access_log is None:
        return []
    line = {"json_format": _FIELDS}
    if settings.access_log == _STDOUT:
        kind = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
        return [extension("envoy.access_loggers.stdout", kind, log_format=line)]
    kind = "envoy.extensions.access_loggers.file.v3.FileAccessLog"
    return [extension("envoy.access_loggers.file", kind, path=settings.access_log, log_format=line)]
