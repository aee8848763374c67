"""One call of a language model: what it asks for, and what its response says was used.

Apps and clients make one from the body of a request, and feed it the response while that passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.llm.amounts import settled
from headgate.llm.attributes import MODEL, attributes_of
from headgate.llm.protocol import protocol_of
from headgate.llm.request import ModelRequest, read_request
from headgate.llm.usage import StreamReader, read_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.llm.usage import Usage

    FinalCost = Callable[[Usage, str | None], int]
    """The cost of a call by its usage and the name of the model that was asked."""

MAX_BODY: Final = 4 << 20
"""The bytes of a body that are read: a longer request is a call of unknown content, and a longer
response that is no stream has unknown usage."""


class ModelCall:
    """One call: what it asks for, and the reader of its response, once that has begun."""

    __slots__ = ("_reader", "asked")

    def __init__(self, asked: ModelRequest) -> None:
        self.asked = asked
        self._reader: StreamReader | _PlainReader | None = None

    @classmethod
    def of(cls, path: str, body: bytes | None, size: int, content_type: str | None) -> ModelCall:
        """The call of *path* with a *body* of *size* bytes; None if the body cannot be read."""
        if body is None or size > MAX_BODY:
            return cls(ModelRequest(protocol_of(path), size, is_readable=False))
        return cls(read_request(path, body, content_type))

    @property
    def attributes(self) -> dict[str, str]:
        """The call as attributes of its request."""
        return attributes_of(self.asked)

    def begin_response(self, content_type: str | None, content_encoding: str | None) -> None:
        """Read a response with these headers from now on."""
        is_stream = (content_type or "").lower().startswith("text/event-stream")
        self._reader = (StreamReader if is_stream else _PlainReader)(content_encoding)

    def feed(self, part: bytes) -> None:
        """Read the next *part* of the response's body."""
        if self._reader is not None:
            self._reader.feed(part)

    def cost(self, final_cost: FinalCost, estimate: int, status: int) -> int:
        """The cost of the call by *final_cost* when its response with *status* has ended."""
        reader, cost = self._reader, None
        usage = None if reader is None else reader.finish()
        if usage is not None:
            cost = final_cost(usage, self.attributes.get(MODEL))
        is_final = reader is not None and reader.is_final
        return settled(cost, estimate, status, is_final=is_final)


class _PlainReader:
    """Reads the usage from the body of a response that is no stream."""

    is_final = True

    def __init__(self, content_encoding: str | None) -> None:
        self._usage: Usage | None = None
        self._coding = content_encoding
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_BODY:
            self._parts.append(part)
        else:
            self._parts.clear()

    def finish(self) -> Usage | None:
        if self._parts:  # once, for all rules
            self._usage = read_usage(b"".join(self._parts), self._coding)
            self._parts.clear()
        return self._usage
