"""From decisions to what a client sees: headers, the body of a refusal, the gRPC status.

    answer (what may be told) -> verdict (of a refusal) -> headers, bodies, grpc

No module here reads a clock or draws at random: the time and the jitter come in as arguments.
"""

from headgate.responses.accept import wants_problem
from headgate.responses.answer import Answer, Told
from headgate.responses.bodies import body_for
from headgate.responses.denial import Refusal, refusal
from headgate.responses.grpc import GrpcStatus, grpc_status
from headgate.responses.headers import expose_headers, headers_for
from headgate.responses.merging import merged
from headgate.responses.options import ResponseOptions

__all__ = [
    "Answer",
    "GrpcStatus",
    "Refusal",
    "ResponseOptions",
    "Told",
    "body_for",
    "expose_headers",
    "grpc_status",
    "headers_for",
    "merged",
    "refusal",
    "wants_problem",
]
