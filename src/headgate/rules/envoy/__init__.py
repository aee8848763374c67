"""The configuration of envoyproxy/ratelimit: reading it, finding limits, making rules."""

from headgate.rules.envoy.attributes import attributes_of
from headgate.rules.envoy.config import EnvoyConfig, Found, without_replaced
from headgate.rules.envoy.conversion import Conversion, convert, to_policy
from headgate.rules.envoy.counter import counter_name
from headgate.rules.envoy.model import UNIT_SECONDS, Descriptor, Domain, RateLimit
from headgate.rules.envoy.reading import read_envoy_config

__all__ = [
    "UNIT_SECONDS",
    "Conversion",
    "Descriptor",
    "Domain",
    "EnvoyConfig",
    "Found",
    "RateLimit",
    "attributes_of",
    "convert",
    "counter_name",
    "read_envoy_config",
    "to_policy",
    "without_replaced",
]
