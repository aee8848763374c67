"""Calls of language models in ASGI apps.

Rules with `cost: {llm: ...}` or `match: {model: ...}` depend on the body of a request. It is read
before the request is checked, and the app receives it unchanged. The response is passed on as it
comes, and read on its way.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headgate.llm.call import MAX_BODY, ModelCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]


def begin_response(call: ModelCall, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Have *call* read the response with *headers* from now on."""
    lines = {name.lower(): value.decode("latin-1") for name, value in headers}
    call.begin_response(lines.get(b"content-type"), lines.get(b"content-encoding"))


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
    body = b"".join(parts) if is_whole else None

    async def receive_again() -> Message:
        return messages.popleft() if messages else await receive()

    return ModelCall.of(
        path, body, size if is_whole else max(size, length or 0), kind
    ), receive_again
