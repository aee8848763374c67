"""What is looked at before anything is started, so that what is wrong is one clear line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.gateway.running.certificates import check_certificates
from headgate.gateway.running.envoy import envoy_program
from headgate.gateway.running.ports import check_free, hold_free

if TYPE_CHECKING:
    from contextlib import ExitStack

    from headgate.gateway.running.terms import ServiceTerms, Terms


def preflight(terms: Terms, held: ExitStack) -> tuple[Terms, str]:
    """*terms* with ports in the place of 0, and Envoy's program. Raises `HeadgateError`.

    The gateway's ports are its own until *held* is closed.
    """
    program = envoy_program(terms.gateway)
    check_certificates(terms.gateway)
    settings = terms.gateway
    listen = hold_free(settings.listen, what="the gateway", held=held)
    admin = settings.envoy_admin
    if admin is not None:
        (admin,) = check_free((admin,), what="envoy_admin")
    gateway = replace(settings, listen=listen, envoy_admin=admin)
    return replace(terms, gateway=gateway, service=_service(terms.service)), program


def _service(terms: ServiceTerms) -> ServiceTerms:
    http = check_free(terms.http, what="http, the service")
    grpc = check_free(terms.grpc, what="grpc, the service")
    config = {**terms.config, "http": [*map(str, http)] or "off"}
    return replace(terms, http=http, grpc=grpc, config=config)
