"""The gateway: a real Envoy in front of upstreams, configured from the rules, and run.

settings (what can be set) -> envoy/ (its configuration, from the rules) -> running/ (the processes)
printed/ has configurations for gateways that others run.
"""
