"""An answer as a gRPC status, and as what a gRPC client is told about retrying (gRFC A6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.responses.answer import DEFAULT, Reason, verdict_of
from headgate.responses.bodies import message_for

if TYPE_CHECKING:
    from headgate.responses.answer import Answer, ResponseOptions

OK: Final = 0
RESOURCE_EXHAUSTED: Final = 8
UNAVAILABLE: Final = 14

PUSHBACK: Final = "grpc-retry-pushback-ms"
LONGEST_PUSHBACK: Final = 2**31 - 1
"""Clients read it as 32 bits."""
NO_RETRY: Final = -1


@dataclass(frozen=True, slots=True)
class GrpcStatus:
    """A status code with its message, and how many milliseconds to wait before a retry.

    A *pushback_ms* of -1 says not to retry; None says nothing.
    """

    code: int
    message: str = ""
    pushback_ms: int | None = None

    @property
    def trailers(self) -> list[tuple[str, str]]:
        """The trailing metadata that says so."""
        return [] if self.pushback_ms is None else [(PUSHBACK, str(self.pushback_ms))]


def grpc_status(answer: Answer, *, options: ResponseOptions = DEFAULT) -> GrpcStatus:
    """OK; RESOURCE_EXHAUSTED if a limit was exceeded; UNAVAILABLE if none could be checked, or if
    there is not enough capacity for now."""
    if answer.allowed:
        return GrpcStatus(OK)
    verdict = verdict_of(answer, options)
    code = RESOURCE_EXHAUSTED if verdict.reason is Reason.EXCEEDED else UNAVAILABLE
    if verdict.speaker is None:
        return GrpcStatus(code, message_for(verdict))
    wait = verdict.retry_after_ms
    helps = wait is not None and wait <= LONGEST_PUSHBACK
    return GrpcStatus(code, message_for(verdict), wait if helps else NO_RETRY)
