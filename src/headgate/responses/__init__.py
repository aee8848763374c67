"""The encoder of responses: rate-limit headers, the body of a denial, the gRPC status.

Read `headers` first; `answer` is what it encodes. Nothing here reads a clock or draws random
numbers: both come in as arguments.
"""

from headgate.responses.answer import Answer, ResponseOptions, RuleAnswer, queue_denial
from headgate.responses.bodies import GrpcStatus, grpc_status, prefers_problem
from headgate.responses.headers import (
    DenialResponse,
    allowed_lines,
    encoded_lines,
    expose_headers,
    headers_for,
    limit_template,
    merged,
    response_for,
)
from headgate.responses.pressure import Load, Throughput, pressure_lines

__all__ = [
    "Answer",
    "DenialResponse",
    "GrpcStatus",
    "Load",
    "ResponseOptions",
    "RuleAnswer",
    "Throughput",
    "allowed_lines",
    "encoded_lines",
    "expose_headers",
    "grpc_status",
    "headers_for",
    "limit_template",
    "merged",
    "prefers_problem",
    "pressure_lines",
    "queue_denial",
    "response_for",
]
