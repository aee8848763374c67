"""The configuration of Envoy, made from the policy and the settings. No I/O.

filters (which rule is decided where; exact, envoy_limits) -> documents (the files)
"""
