"""Configurations for gateways that others run: nginx, Caddy, Traefik, Envoy, Istio.

wanted (what was asked for, checked) -> one module for each gateway (its text)

What is put into a text is checked before (`wanted`) and quoted as its syntax wants (`template`):
nothing that a caller gives can end the place that it is put in.
"""

from headgate.gateway.printed.gateways import GATEWAYS, Gateway, gateway_named
from headgate.gateway.printed.wanted import Wanted, make_wanted

__all__ = ["GATEWAYS", "Gateway", "Wanted", "gateway_named", "make_wanted"]
