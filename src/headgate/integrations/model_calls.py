"""Calls of language models in ASGI apps: what a request asks for, and what its response has used.

Rules with `cost: {llm: ...}` or `match: {model: ...}` depend on the body of a request. It is read
before the request is checked, and the app receives it unchanged. The response is passed on as it
comes, and read on its way.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headgate.llm.amounts import settled
from headgate.llm.attributes import MODEL, attributes_of
from headgate.llm.protocol import protocol_of
from headgate.llm.request import ModelRequest, read_request
from headgate.llm.usage import StreamReader, read_usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from headgate.engine.plan import RulePlan
    from headgate.llm.usage import Usage

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]

MAX_BODY: Final = 4 << 20
"""The bytes of a body that are read: a longer request is a call of unknown content, and a longer
response that is no stream has unknown usage."""


class ModelCall:
    """One call: what it asks for, and the reader of its response, once that has begun."""

    __slots__ = ("_reader", "asked")

    def __init__(self, asked: ModelRequest) -> None:
        self.asked = asked
        self._reader: StreamReader | _PlainReader | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """The call as attributes of its request."""
        return attributes_of(self.asked)

    def begin_response(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Read the response with *headers* from now on."""
        lines = {name.lower(): value.decode("latin-1") for name, value in headers}
        is_stream = lines.get(b"content-type", "").lower().startswith("text/event-stream")
        self._reader = (StreamReader if is_stream else _PlainReader)(lines.get(b"content-encoding"))

    def feed(self, part: bytes) -> None:
        """Read the next *part* of the response's body."""
        if self._reader is not None:
            self._reader.feed(part)

    def cost(self, one: RulePlan, status: int) -> int:
        """What the call costs under a rule when its response with *status* has ended."""
        reader, final_cost = self._reader, one.rule.final_cost
        usage = None if reader is None else reader.finish()
        cost, is_final = None, False
        if usage is not None and reader is not None and final_cost is not None:
            cost, is_final = final_cost(usage, self.attributes.get(MODEL)), reader.is_final
        return settled(cost, one.cost, status, is_final=is_final)


class _PlainReader:
    """Reads the usage from the body of a response that is no stream."""

    is_final = True

    def __init__(self, content_encoding: str | None) -> None:
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
        return read_usage(b"".join(self._parts), self._coding)


async def read_call(
    path: str, kind: str, length: int | None, receive: Receive
) -> tuple[ModelCall, Receive]:
    """The call whose body comes from *receive*, and a `receive` for the app.

    *kind* is the content type of the body, *length* its announced length.
    """
    messages: deque[Message] = deque()
    parts: list[bytes] = []
    size, is_whole = 0, False
    while not is_whole and size <= MAX_BODY:
        message = await receive()
        messages.append(message)
        parts.append(message.get("body") or b"")
        size += len(parts[-1])
        is_whole = not message.get("more_body", False)  # true if the client has gone, too
    if is_whole and size <= MAX_BODY:
        asked = read_request(path, b"".join(parts), kind)
    else:
        size = max(size, length or 0)
        asked = ModelRequest(protocol_of(path), size, is_readable=False)

    async def receive_again() -> Message:
        return messages.popleft() if messages else await receive()

    return ModelCall(asked), receive_again
