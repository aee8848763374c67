"""The configuration of envoyproxy/ratelimit.

reader (files) -> config (domains, limits of a descriptor) -> conversion (rules); attributes has the
form in which rules see descriptors.
"""
