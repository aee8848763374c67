"""The gateway: the real Envoy before upstreams, configured from the policy.

envoy/ makes Envoy's configuration, processes/ runs Envoy and the service, templates/ has
configurations for other gateways. The settings are in `config.gateway`.
"""
