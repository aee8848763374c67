"""Envoy's rate limit service, `envoy.service.ratelimit.v3`: bytes in, bytes out.

bytes -> requests -> ruled or configured (plans) -> engine.calls (decisions) -> answer -> bytes.
Read `calls` first.
"""

from headgate.service.rls.calls import RateLimitCalls
from headgate.service.rls.messages import PATH
from headgate.service.rls.requests import RlsOptions

__all__ = ["PATH", "RateLimitCalls", "RlsOptions"]
