"""The configuration of envoyproxy/ratelimit: reading it, finding limits, making rules."""

from headgate.policy.envoy_config.attributes import attributes_of
from headgate.policy.envoy_config.config import EnvoyConfig, Found, counter_name, without_replaced
from headgate.policy.envoy_config.conversion import Conversion, convert, to_policy
from headgate.policy.envoy_config.model import UNIT_SECONDS, Descriptor, Domain, RateLimit
from headgate.policy.envoy_config.reader import read_envoy_config

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
