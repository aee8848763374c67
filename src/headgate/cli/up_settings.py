"""The settings of the service for its configuration file."""

from __future__ import annotations

import secrets
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.processes.options import ServiceOptions

if TYPE_CHECKING:
    from headgate.config.service import Settings

_SECRET_BYTES: Final = 32
_LEAST_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of the largest message of Envoy: usage reports of thousands of buckets."""

_PLACED: Final = frozenset(("rules", "grpc"))
"""Settings that the gateway adds, because they name files in its directory."""


def service_options(settings: Settings) -> ServiceOptions:
    """The options of a service with *settings*.

    Generates a secret if there is none, so that reservations survive a restart of the service.
    """
    if not settings.secret:
        settings = replace(settings, secret=secrets.token_hex(_SECRET_BYTES).encode())
    settings = replace(settings, max_message=max(settings.max_message, _LEAST_MESSAGE))
    kept = {
        name: getattr(settings, name)
        for name in ("salt", "secret", "admin_token")
        if getattr(settings, name)
    }
    return ServiceOptions(
        config=service_config(settings),
        secrets=kept,
        http=settings.http,
        grpc=settings.grpc,
        workers=settings.workers,
        linger=settings.linger,
        drain=settings.drain,
    )


def service_config(settings: Settings) -> dict[str, object]:
    """*settings* as the content of a file, without secrets and empty values."""
    config = {}
    for one in fields(settings):
        value = getattr(settings, one.name)
        is_secret = isinstance(value, bytes) or one.name.endswith("_file")
        if value is None or one.name in _PLACED or (is_secret and one.name != "audit_file"):
            continue
        config[one.name] = _written(one.name, value)
    return {name: value for name, value in config.items() if value is not None}


def _written(name: str, value: Any) -> object:
    if name == "socket_mode":
        return f"{value:o}"
    if name == "admin_tokens":
        return [
            {"name": one.name, "role": one.role, "sha256": one.digest.hex()} for one in value
        ] or None
    if name == "admin_certificates":
        return [
            {"name": one.name, "role": one.role, "subject": one.subject} for one in value
        ] or None
    if name == "region_peers":
        return [f"{one.name}={one.store}" for one in value] or None
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the file has 0 for a time of 0.0
    if isinstance(value, tuple):
        return [str(one) for one in value] or "off"
    return value
