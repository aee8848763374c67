"""The configuration of Envoy, made from the rules and the settings. No I/O.

deciding (which rule is decided how) -> filters (exact, quota, local) -> documents (the files)
"""
