"""The settings of the service, as its own file would have them."""

from __future__ import annotations

import secrets
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.processes.options import ServiceTerms

if TYPE_CHECKING:
    from headgate.config.service import Settings

_SECRET_BYTES: Final = 32
_LEAST_MESSAGE: Final = 32 * 1024 * 1024
"""What Envoy may have to say at once: the heads of requests for every rule that hears of costs, and
the use of thousands of buckets. It is the only one who is heard on its socket."""

_PLACED: Final = frozenset(("rules", "grpc"))
"""What is said by the gateway, which knows where its files are."""


def service_terms(settings: Settings) -> ServiceTerms:
    """What a gateway is to know of a service with *settings*.

    Without a secret one is made, so that reservations outlive a service that is started again.
    """
    if not settings.secret:
        settings = replace(settings, secret=secrets.token_hex(_SECRET_BYTES).encode())
    settings = replace(settings, max_message=max(settings.max_message, _LEAST_MESSAGE))
    kept = {
        name: getattr(settings, name)
        for name in ("salt", "secret", "admin_token")
        if getattr(settings, name)
    }
    return ServiceTerms(
        config=config_of(settings),
        secrets=kept,
        http=settings.http,
        grpc=settings.grpc,
        workers=settings.workers,
        linger=settings.linger,
        drain=settings.drain,
    )


def config_of(settings: Settings) -> dict[str, object]:
    """*settings* as a file has them, without secrets and without what is left at nothing."""
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
        return int(value)  # no time at all is written 0
    if isinstance(value, tuple):
        return [str(one) for one in value] or "off"
    return value
