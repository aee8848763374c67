"""Calls of language models: what limits read in requests and responses, and what a call costs.

Read `amounts` first: what a limit charges, an estimate from the `request` before the call and the
actual amount from the `usage` after it, in tokens or by `prices`. `protocol` has what clients of
each provider expect. Pure: no I/O, no clock.
"""

from headgate.llm.amounts import KINDS, Kind, actual, estimate, settled
from headgate.llm.prices import Price, Prices
from headgate.llm.protocol import (
    Figures,
    Protocol,
    denial_body,
    protocol_of,
    rate_limit_headers,
    retry_headers,
)
from headgate.llm.request import (
    ModelRequest,
    estimated_prompt_tokens,
    read_request,
    request_of_fields,
    with_usage_reported,
)
from headgate.llm.usage import StreamReader, Usage, read_usage

__all__ = [
    "KINDS",
    "Figures",
    "Kind",
    "ModelRequest",
    "Price",
    "Prices",
    "Protocol",
    "StreamReader",
    "Usage",
    "actual",
    "denial_body",
    "estimate",
    "estimated_prompt_tokens",
    "protocol_of",
    "rate_limit_headers",
    "read_request",
    "read_usage",
    "request_of_fields",
    "retry_headers",
    "settled",
    "with_usage_reported",
]
