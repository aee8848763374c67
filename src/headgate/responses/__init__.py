"""From decisions to what a client sees: headers, the body of a refusal, the gRPC status.

    answer (what may be told) -> verdict (of a refusal) -> headers, bodies, grpc
    pressure (of a queue) -> headers

No module here reads a clock or draws at random: the time and the jitter come in as arguments.
"""

from headgate.responses.accept import wants_problem
from headgate.responses.answer import GATE, Answer, Told, turned_away
from headgate.responses.bodies import body_for
from headgate.responses.denial import Refusal, refusal
from headgate.responses.grpc import GrpcStatus, grpc_status
from headgate.responses.headers import expose_headers, headers_for
from headgate.responses.merging import merged
from headgate.responses.options import ResponseOptions
from headgate.responses.pressure import Load, orca_line, pressure_lines
from headgate.responses.throughput import Throughput

__all__ = [
    "GATE",
    "Answer",
    "GrpcStatus",
    "Load",
    "Refusal",
    "ResponseOptions",
    "Throughput",
    "Told",
    "body_for",
    "expose_headers",
    "grpc_status",
    "headers_for",
    "merged",
    "orca_line",
    "pressure_lines",
    "refusal",
    "turned_away",
    "wants_problem",
]
