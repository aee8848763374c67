"""From decisions to what a client sees: headers, the body of a denial, the gRPC status.

    answer (what may be reported) -> headers, bodies, grpc
    pressure (of a queue) -> headers

No module here reads a clock or draws at random: the time and the jitter come in as arguments.
"""

from headgate.responses.answer import GATE, Answer, ResponseOptions, Told, turned_away
from headgate.responses.bodies import body_for, wants_problem
from headgate.responses.grpc import GrpcStatus, grpc_status
from headgate.responses.headers import Refusal, expose_headers, headers_for, merged, refusal
from headgate.responses.pressure import Load, Throughput, orca_line, pressure_lines

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
