"""The usage that a response states: tokens of input, of the cache and of output.

Three forms of an object `usage`, distinguished by their keys:

    prompt_tokens, completion_tokens    OpenAI's chat, completions and embeddings; cached tokens are
                                        part of the prompt
    input_tokens, output_tokens         OpenAI's responses; cached tokens are part of the input
    the same with cache_read_input_tokens, cache_creation_input_tokens
                                        Anthropic's messages; these are not part of `input_tokens`

Some servers leave reasoning out of the output but not out of `total_tokens`: the larger counts.
Figures that cannot be right (negative, fractions, texts, more than `MOST_TOKENS`) make a usage
unknown. What a model writes is inside of JSON strings, so that it cannot state a usage.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from headgate.errors import CostError
from headgate.llm.request import MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_EVENT_BYTES: Final = 4 << 20
"""The largest event of a stream that is read; a larger one is skipped. OpenAI's responses end with
an event that repeats all of the output."""

MOST_DECODED_BYTES: Final = 64 << 20
"""The most that a compressed response is decompressed to; its usage is unknown beyond."""

_PIECE_BYTES: Final = 1 << 16
_EVENT_END: Final = re.compile(rb"\n[\r\n]|\r\r")
"""The end of a line and the start of another, of any kind: `\r\n\r\n` has the first form."""

_ENDS: Final = (b"\n\n", b"\n\r", b"\r\r")
_END_BYTES: Final = 2
_MARKS: Final = (b'tokens"', b"[DONE]")
"""One of these is in every event that states a usage or ends a stream."""

_MARK_BYTES: Final = 7


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of a call. The input includes those read from the cache and written to it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0

    def __post_init__(self) -> None:
        cached, written = self.cached_tokens, self.cache_write_tokens
        if min(self.output_tokens, cached, written) < 0 or cached + written > self.input_tokens:
            raise CostError(f"{self} has negative tokens, or more cached tokens than input")

    @property
    def total(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens


def read_usage(body: bytes, content_encoding: str | None = None) -> Usage | None:
    """Return the usage that the *body* of a plain response states; None if it states none.

    Compressed bodies are read if they are gzip or deflate, up to `MOST_DECODED_BYTES`.
    """
    try:
        whole = b"".join(_Decoder(content_encoding).feed(body))
    except _UnreadableError:
        return None
    data = _json(whole) if _is_telling(whole) else None
    return _usage_of(data.get("usage")) if isinstance(data, dict) else None


class StreamReader:
    """Read the usage from the body of a streamed response, an SSE stream of either protocol.

    `feed` takes the chunks as they come, `finish` their end. The reader changes and holds back
    nothing: it sees a copy. It keeps at most one event, of at most `MOST_EVENT_BYTES`, and parses
    only those that may state a usage. Damaged events are skipped.

    *usage* is the last one stated: by the last chunk that has one (OpenAI), by the event that
    completes a response (OpenAI's responses), by `message_delta` with the input of `message_start`
    (Anthropic). *is_final* tells whether it is the usage of the whole call. A stream that ends
    before that was cut: the call has used what *usage* says, or more.
    """

    def __init__(self, content_encoding: str | None = None) -> None:
        self.usage: Usage | None = None
        self.is_final = False
        self._decoder: _Decoder | None = _Decoder(content_encoding)
        self._buffer = bytearray()
        self._has_mark = False
        self._is_skipping = False
        self._started: dict[str, Any] = {}

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the body."""
        if self._decoder is None:
            return
        try:
            for piece in self._decoder.feed(chunk):
                self._read(piece)
        except _UnreadableError:
            self._decoder, self.usage, self.is_final = None, None, False
            self._buffer.clear()

    def finish(self) -> Usage | None:
        """Read the last event, even if no blank line ends it, and return the usage."""
        if self._decoder is not None:
            self._read(b"\n\n")
        return self.usage

    def _read(self, piece: bytes) -> None:
        buffer = self._buffer
        known = len(buffer)
        buffer += piece
        if self._has_mark or _is_telling(buffer, max(known - _MARK_BYTES + 1, 0)):
            self._read_events(max(known - _END_BYTES + 1, 0))
        else:
            ends = (buffer.rfind(end, max(known - _END_BYTES + 1, 0)) for end in _ENDS)
            self._drop(max(ends) + _END_BYTES)
        if self._is_skipping or len(buffer) > MOST_EVENT_BYTES:
            self._is_skipping, self._has_mark = True, False
            del buffer[: 1 - _END_BYTES]

    def _read_events(self, place: int) -> None:
        """Read the events in the buffer that are whole. The first of them ends behind *place*."""
        buffer, start = self._buffer, 0
        while found := _EVENT_END.search(buffer, place):
            place = found.end()
            if self._is_skipping or place - start > MOST_EVENT_BYTES:
                self._is_skipping = False
            elif _is_telling(buffer, start, place):
                self._read_event(bytes(buffer[start:place]))
            start = place
        self._drop(start)
        self._has_mark = _is_telling(buffer, 0) if start else True

    def _drop(self, count: int) -> None:
        """Forget the first bytes of the buffer, whole events."""
        if count >= _END_BYTES:
            del self._buffer[:count]
            self._is_skipping = False

    def _read_event(self, event: bytes) -> None:
        lines = (line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        text = b"\n".join(lines)
        if text.startswith(b"[DONE]"):
            self.is_final = self.usage is not None
            return
        data = _json(text)
        if not isinstance(data, dict):
            return
        if data.get("type") == "message_start":
            message = data.get("message")
            stated = message.get("usage") if isinstance(message, dict) else None
            self._started = stated if isinstance(stated, dict) else {}
            return
        self._read_stated(data)

    def _read_stated(self, data: dict[str, Any]) -> None:
        """Read the usage of an event: of a chunk, of `message_delta`, or of a whole response."""
        response = data.get("response")
        stated = (response if isinstance(response, dict) else data).get("usage")
        if isinstance(stated, dict) and self._started:
            later = {key: value for key, value in stated.items() if value is not None}
            stated = {**self._started, **later}
        usage = _usage_of(stated)
        if usage is not None:
            delta = data.get("delta")
            is_stopped = isinstance(delta, dict) and delta.get("stop_reason") is not None
            self.usage = usage
            self.is_final = isinstance(response, dict) or is_stopped or data.get("choices") == []


def _is_telling(text: bytes | bytearray, start: int = 0, end: int | None = None) -> bool:
    return any(text.find(mark, start, end) >= 0 for mark in _MARKS)


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _usage_of(stated: object) -> Usage | None:
    """Return the usage in an object of either form; None if it is not whole."""
    if not isinstance(stated, dict):
        return None
    if "prompt_tokens" in stated:
        sizes = [stated["prompt_tokens"], stated.get("completion_tokens", 0)]
        cached, written = _details(stated.get("prompt_tokens_details"))
    else:
        sizes = [stated.get("input_tokens"), stated.get("output_tokens")]
        cached, written = _details(stated.get("input_tokens_details"))
        read, created = (
            stated.get(f"cache_{what}_input_tokens") or 0 for what in ("read", "creation")
        )
        if not (_is_count(read) and _is_count(created)):
            return None
        if read or created:
            sizes[0] = sizes[0] + read + created if _is_count(sizes[0]) else None
            cached, written = read, created
    if not all(map(_is_count, sizes)):
        return None
    size, output = sizes
    total = stated.get("total_tokens")
    if _is_count(total):
        output = max(output, total - size)
    cached = min(cached, size)
    return Usage(size, output, cached, min(written, size - cached))


def _details(stated: object) -> tuple[int, int]:
    """Return the cached and the written tokens; what is damaged counts as not cached."""
    if not isinstance(stated, dict):
        return 0, 0
    cached, written = stated.get("cached_tokens"), stated.get("cache_write_tokens")
    return cached if _is_count(cached) else 0, written if _is_count(written) else 0


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MOST_TOKENS


class _UnreadableError(Exception):
    """A content encoding that is unknown, damaged or too large."""


class _Decoder:
    """Decompress a body chunk by chunk, with bounded memory."""

    def __init__(self, content_encoding: str | None) -> None:
        self._name = (content_encoding or "identity").strip().lower()
        self._inflate: Any = None
        self._decoded_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield *chunk* decompressed, in small pieces."""
        if self._name == "identity":
            yield chunk
            return
        if self._inflate is None and chunk:
            self._inflate = zlib.decompressobj(self._window_bits(chunk))
        elif self._inflate is None or self._inflate.eof:
            return
        piece = b""
        while chunk or len(piece) == _PIECE_BYTES:  # more may be pending
            try:
                piece = self._inflate.decompress(chunk, _PIECE_BYTES)
            except zlib.error as error:
                raise _UnreadableError from error
            self._decoded_bytes += len(piece)
            if self._decoded_bytes > MOST_DECODED_BYTES:
                raise _UnreadableError
            yield piece
            chunk = b"" if self._inflate.eof else self._inflate.unconsumed_tail

    def _window_bits(self, chunk: bytes) -> int:
        """Return what zlib calls the format; deflate is with or without the header of zlib."""
        if self._name in ("gzip", "x-gzip"):
            return 16 + zlib.MAX_WBITS
        if self._name == "deflate":
            return zlib.MAX_WBITS if chunk[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
        raise _UnreadableError
