"""Istio: an EnvoyFilter for its ingress gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.printed.ratelimit import ratelimit_filter, service_cluster
from headgate.gateway.printed.template import filled

if TYPE_CHECKING:
    from headgate.gateway.printed.wanted import Wanted

_FILTER: Final = """\
# Headgate decides, Istio's ingress gateway obeys:
#   kubectl apply -f FILE
# Whose address Envoy sees depends on what is before it: set externalTrafficPolicy: Local on the
# gateway's Service, or numTrustedProxies in the mesh's gatewayTopology.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: headgate
  namespace: istio-system       # that of the gateway's pods
spec:
  workloadSelector:
    labels: {istio: ingressgateway}     # those of the gateway's pods
  configPatches:
    # Ask about every request, before it is routed.
    - applyTo: HTTP_FILTER
      match:
        context: GATEWAY
        listener:
          filterChain:
            filter:
              name: envoy.filters.network.http_connection_manager
              subFilter: {name: envoy.filters.http.router}
      patch:
        operation: INSERT_BEFORE
        value:
          <<filter>>
    # Where `headgate serve` has its gRPC: a headless Service, so that every pod is an endpoint.
    - applyTo: CLUSTER
      match: {context: GATEWAY}
      patch:
        operation: ADD
        value:
          <<service>>
"""


def istio_text(wanted: Wanted) -> str:
    """A resource of Kubernetes, in YAML."""
    return filled(_FILTER, {"filter": ratelimit_filter(wanted), "service": service_cluster(wanted)})
