"""The encoder of responses: rate-limit headers, the body of a denial, the gRPC status.

Read `headers` first; `answer` is what it encodes. Nothing here reads a clock or draws random
numbers: both come in as arguments.
"""

from headgate.responses.answer import Answer, ResponseOptions, Told, turned_away
from headgate.responses.bodies import GrpcStatus, body_for, grpc_status, wants_problem
from headgate.responses.headers import (
    Refusal,
    allowed_lines,
    encoded_lines,
    expose_headers,
    headers_for,
    limit_template,
    merged,
    refusal,
)
from headgate.responses.pressure import Load, Throughput, pressure_lines

__all__ = [
    "Answer",
    "GrpcStatus",
    "Load",
    "Refusal",
    "ResponseOptions",
    "Throughput",
    "Told",
    "allowed_lines",
    "body_for",
    "encoded_lines",
    "expose_headers",
    "grpc_status",
    "headers_for",
    "limit_template",
    "merged",
    "pressure_lines",
    "refusal",
    "turned_away",
    "wants_problem",
]
