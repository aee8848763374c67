"""A language-model server for tests: OpenAI's chat completions and Anthropic's messages.

It answers plainly or as a stream of server-sent events. A test chooses the usage, the pace and the
failure: for all requests with a `Behaviour`, for one with a header `x-llm-<field>`, which the SDKs
send as `extra_headers`:

    with llm_upstream(Behaviour(output_tokens=50)) as upstream:
        client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="any")
        client.chat.completions.create(..., extra_headers={"x-llm-fail": "reset"})
        assert upstream.calls[0].output_tokens == 50

A prompt has a token for each four characters of the request's `messages` and `system`, as JSON.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import zlib
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import h11

from tests.support.servers.ports import HOST
from tests.support.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
CONTROL: Final = "x-llm-"
"""The prefix of headers that change the behaviour for one request."""

CHARACTERS_PER_TOKEN: Final = 4
_READ_SIZE: Final = 65_536
_PAUSE: Final = 0.005
_GZIP: Final = 31
"""The window bits that make zlib write gzip."""

Usage = Literal["asked", "always", "each", "never"]
"""When a stream has usage: if OpenAI's `include_usage` asks for it, always, in every chunk as well,
never. Plain responses have it unless "never"; Anthropic's streams too."""

Failure = Literal["none", "status", "reset", "cut"]
"""Respond with 529; or after `fail_after` chunks reset the connection, or close it early."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a response looks like."""

    output_tokens: int = 5
    """The tokens of a response, at most what the request allows."""
    cached_tokens: int = 0
    first_delay: float = 0.0
    """Seconds before the head of the response."""
    delay: float = 0.0
    """Seconds before each chunk of a stream."""
    usage: Usage = "asked"
    fail: Failure = "none"
    fail_after: int = 2
    hold_after: int = 0
    """After so many chunks of a stream, wait until the `gate` opens; 0: do not."""
    padding: int = 0
    """Bytes added to the text of each chunk."""
    piece: int = 0
    """Bytes in each write of a stream, whatever its events; 0 for an event in each write."""
    newline: Literal["lf", "crlf"] = "lf"
    compress: bool = False
    """Compress a plain response or a stream with gzip, whatever the request accepts."""
    content_type: str = ""
    """The content type in place of the usual one."""

    def changed(self, headers: dict[str, str]) -> Behaviour:
        """This behaviour with the changes that *headers* ask for."""
        changes: dict[str, Any] = {}
        for one in fields(self):
            text = headers.get(CONTROL + one.name.replace("_", "-"))
            if text is not None:
                kind = type(getattr(self, one.name))
                changes[one.name] = text == "true" if kind is bool else kind(text)
        return replace(self, **changes)


@dataclass(slots=True)
class Call:
    """A request that has arrived, and what became of its response."""

    path: str
    headers: dict[str, str]
    body: bytes
    prompt_tokens: int = 0
    output_tokens: int = 0
    """The tokens that have been sent."""
    is_complete: bool = False
    """True if the whole response was written."""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


@dataclass(slots=True)
class LlmUpstream:
    """The server while it runs, and the calls that have arrived."""

    url: str
    calls: list[Call] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    @property
    def tokens(self) -> int:
        """The tokens of all calls."""
        return sum(one.tokens for one in self.calls)


@contextmanager
def llm_upstream(behaviour: Behaviour | None = None, *, port: int = 0) -> Iterator[LlmUpstream]:
    """A server on loopback, in a thread with an event loop."""
    upstream = LlmUpstream("")
    server = _Server(behaviour or Behaviour(), upstream)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        listening = await asyncio.start_server(server.connected, HOST, port, backlog=1024)
        upstream.url = f"http://{HOST}:{listening.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()
        listening.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        ready.wait()
        yield upstream
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class _Disconnected(Exception):  # noqa: N818 - not an error
    """The connection is over."""


class _Server:
    """Handles connections, one request after another."""

    def __init__(self, behaviour: Behaviour, upstream: LlmUpstream) -> None:
        self._behaviour = behaviour
        self._upstream = upstream
        self.tasks: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            with suppress(_Disconnected, ConnectionError, h11.ProtocolError):
                await self._serve(_Connection(reader, writer))
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _serve(self, connection: _Connection) -> None:
        while True:
            call = await connection.read()
            behaviour = self._behaviour.changed(call.headers)
            self._upstream.calls.append(call)
            await asyncio.sleep(behaviour.first_delay)
            await _respond(connection, call, behaviour, self._upstream.gate)
            call.is_complete = True
            connection.http.start_next_cycle()


class _Connection:
    """HTTP/1.1 by h11 on the streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(h11.SERVER)
        self._reader = reader
        self._writer = writer

    async def read(self) -> Call:
        """The next request, with its whole body."""
        call = Call("", {}, b"")
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                self.http.receive_data(await self._reader.read(_READ_SIZE))
            elif isinstance(event, h11.Request):
                call.path = event.target.decode().partition("?")[0]
                call.headers = {key.decode(): value.decode() for key, value in event.headers}
            elif isinstance(event, h11.Data):
                call.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return call
            else:
                raise _Disconnected

    async def send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()
        if self._reader.at_eof():
            raise _Disconnected

    def reset(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()
        raise _Disconnected

    def cut(self) -> None:
        """Close the connection within a response."""
        raise _Disconnected


async def _respond(
    connection: _Connection, call: Call, behaviour: Behaviour, gate: threading.Event
) -> None:
    make = _PROTOCOLS.get(call.path)
    asked = _read_json(call.body)
    if make is None or asked is None:
        message = {"error": {"type": "invalid_request_error", "message": "not understood"}}
        await _plain(connection, behaviour, 404 if make is None else 400, message)
        return
    if behaviour.fail == "status":
        message = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
        await _plain(connection, behaviour, 529, message)
        return
    text = json.dumps([asked.get("messages"), asked.get("system")])
    call.prompt_tokens = len(text) // CHARACTERS_PER_TOKEN
    limits = [asked.get("max_completion_tokens"), asked.get("max_tokens")]
    known = [one for one in limits if isinstance(one, int) and one >= 0]
    output = min([behaviour.output_tokens, *known])
    response = make(asked, call.prompt_tokens, output, behaviour)
    if asked.get("stream") is True:
        await _stream(connection, call, behaviour, response.events, gate)
        return
    call.output_tokens = output
    await _plain(connection, behaviour, 200, response.plain)


def _read_json(body: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


@dataclass(frozen=True, slots=True)
class _Response:
    """A response in both forms. An event has a name, or none, its data, and its tokens."""

    plain: dict[str, Any]
    events: list[tuple[str, dict[str, Any] | str, int]]


def _chat_response(asked: dict[str, Any], prompt: int, output: int, how: Behaviour) -> _Response:
    """OpenAI's form. In a stream the usage is in a last chunk without choices."""
    head = {"id": "chatcmpl-1", "created": 1, "model": asked.get("model")}
    text = "word " + "x" * how.padding
    message = {"role": "assistant", "content": text * output}
    plain = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    if how.usage != "never":
        plain["usage"] = _chat_usage(prompt, output, how)
    head["object"] = "chat.completion.chunk"
    options = asked.get("stream_options") or {}
    has_usage = how.usage in {"always", "each"} or (
        how.usage == "asked" and options.get("include_usage") is True
    )
    events: list[tuple[str, dict[str, Any] | str, int]] = []
    for number in range(1, output + 1):
        is_last = number == output
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": text},
            "finish_reason": "stop" if is_last else None,
        }
        chunk: dict[str, Any] = {**head, "choices": [choice]}
        if how.usage == "each":
            chunk["usage"] = _chat_usage(prompt, number, how)
        elif has_usage:
            chunk["usage"] = None
        events.append(("", chunk, 1))
    if has_usage:
        usage = _chat_usage(prompt, output, how)
        events.append(("", {**head, "choices": [], "usage": usage}, 0))
    events.append(("", "[DONE]", 0))
    return _Response(plain, events)


def _chat_usage(prompt: int, output: int, how: Behaviour) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": how.cached_tokens},
    }


def _messages_response(
    asked: dict[str, Any], prompt: int, output: int, how: Behaviour
) -> _Response:
    """Anthropic's form. In a stream the first event has the input's usage, `message_delta` the
    output's, which is cumulative. Cached tokens are not among `input_tokens`."""
    text = "word " + "x" * how.padding
    has_usage = how.usage != "never"
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": how.cached_tokens}
    read = {"input_tokens": prompt - how.cached_tokens, **cached}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    plain = {**message, **ended, "content": [{"type": "text", "text": text * output}]}
    start: dict[str, Any] = {"type": "message_start", "message": message}
    delta: dict[str, Any] = {"type": "message_delta", "delta": ended}
    if has_usage:
        plain["usage"] = {**read, "output_tokens": output}
        start["message"] = {**message, "usage": {**read, "output_tokens": 1}}
        delta["usage"] = {"output_tokens": output}
    block = {"type": "text", "text": ""}
    piece = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
    data: list[tuple[dict[str, Any], int]] = [
        (start, 0),
        ({"type": "content_block_start", "index": 0, "content_block": block}, 0),
        ({"type": "ping"}, 0),
        *([(piece, 1)] * output),
        ({"type": "content_block_stop", "index": 0}, 0),
        (delta, 0),
        ({"type": "message_stop"}, 0),
    ]
    return _Response(plain, [(one["type"], one, tokens) for one, tokens in data])


_PROTOCOLS: Final = {CHAT: _chat_response, MESSAGES: _messages_response}


async def _plain(
    connection: _Connection, behaviour: Behaviour, status: int, content: dict[str, Any]
) -> None:
    body = json.dumps(content).encode()
    headers = [("content-type", behaviour.content_type or "application/json")]
    if behaviour.compress:
        body = gzip.compress(body)
        headers.append(("content-encoding", "gzip"))
    headers.append(("content-length", str(len(body))))
    await connection.send(h11.Response(status_code=status, headers=headers))
    half = len(body) // 2
    await connection.send(h11.Data(data=body[:half]))
    _fail(connection, behaviour)
    await connection.send(h11.Data(data=body[half:]))
    await connection.send(h11.EndOfMessage())


async def _stream(
    connection: _Connection,
    call: Call,
    behaviour: Behaviour,
    events: list[tuple[str, dict[str, Any] | str, int]],
    gate: threading.Event,
) -> None:
    headers = [
        ("content-type", behaviour.content_type or "text/event-stream; charset=utf-8"),
        ("transfer-encoding", "chunked"),
    ]
    if behaviour.compress:
        headers.append(("content-encoding", "gzip"))
    await connection.send(h11.Response(status_code=200, headers=headers))
    gzipped = zlib.compressobj(wbits=_GZIP) if behaviour.compress else None
    for place, (name, data, tokens) in enumerate(events):
        if place == behaviour.fail_after:
            _fail(connection, behaviour)
        if behaviour.hold_after and place >= behaviour.hold_after:
            await until(gate.is_set)
        await asyncio.sleep(behaviour.delay)
        encoded = _encoded(name, data, behaviour)
        if gzipped is not None:
            encoded = gzipped.compress(encoded) + gzipped.flush(zlib.Z_SYNC_FLUSH)
        size = behaviour.piece or len(encoded)
        for start in range(0, len(encoded), size):
            await connection.send(h11.Data(data=encoded[start : start + size]))
            if behaviour.piece:
                await asyncio.sleep(0)
        call.output_tokens += tokens
    if gzipped is not None:
        await connection.send(h11.Data(data=gzipped.flush()))
    await connection.send(h11.EndOfMessage())


def _encoded(name: str, data: dict[str, Any] | str, behaviour: Behaviour) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    event = f"event: {name}\n" if name else ""
    event += f"data: {text}\n\n"
    if behaviour.newline == "crlf":
        event = event.replace("\n", "\r\n")
    return event.encode()


def _fail(connection: _Connection, behaviour: Behaviour) -> None:
    if behaviour.fail == "reset":
        connection.reset()
    if behaviour.fail == "cut":
        connection.cut()


def control(behaviour: Behaviour) -> dict[str, str]:
    """The headers that ask for *behaviour*."""
    values = {key: str(value).lower() for key, value in asdict(behaviour).items()}
    return {CONTROL + key.replace("_", "-"): value for key, value in values.items() if value}
