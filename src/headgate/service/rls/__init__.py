"""Envoy's rate limit service, `envoy.service.ratelimit.v3`: bytes in, bytes out.

`requests` decodes a call, `rule_lines` or `envoy_lines` plan it, `engine.calls` decides it and
`answer` encodes the reply. Read `calls` first.
"""

from headgate.service.rls.calls import RateLimitCalls
from headgate.service.rls.messages import PATH
from headgate.service.rls.requests import RlsOptions

__all__ = ["PATH", "RateLimitCalls", "RlsOptions"]
