"""Any bytes are a call of a model, or a response of one: no exception, no endless work."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.llm import (
    KINDS,
    ModelRequest,
    Price,
    Prices,
    StreamReader,
    Usage,
    actual,
    estimate,
    read_request,
    read_usage,
    with_usage_reported,
)
from headgate.llm.attributes import ModelPatterns
from headgate.llm.request import MOST_TOKENS
from headgate.llm.usage import MOST_EVENT_BYTES
from tests.support.fuzzing import (
    LARGEST_CPU_SECONDS,
    Changes,
    anything,
    bounded,
    changed,
    changes,
    fuzz_count,
    paths_in,
    replaced,
)

PRICES = Prices({"m": Price(1, 2), "gpt-*": Price(3, 4)})
PATHS = st.sampled_from(
    ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/embeddings", "/v1/responses"]
) | st.text(max_size=12)
TYPES = st.sampled_from([None, "application/json", "multipart/form-data", "é"])

CALL: Any = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": 'Say "max_tokens": 5'}],
    "prompt": ["a", "b"],
    "max_tokens": 50,
    "n": 2,
    "stream": True,
    "stream_options": {"include_usage": False},
}
GOOD_CALL = json.dumps(CALL).encode()
ANSWER: Any = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn"},
    "choices": [],
    "response": {"usage": {"input_tokens": 5, "output_tokens": 6}},
    "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 2}},
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
        "output_tokens": 5,
        "cache_creation_input_tokens": 1,
    },
}
START = json.dumps({"type": "message_start", **ANSWER})
STREAM = f"event: x\r\ndata: {START}\r\n\r\ndata: {json.dumps(ANSWER)}\n\ndata: [DONE]\n\n".encode()
PIECES = st.binary(max_size=3) | st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"null", b"true", b"-", b"1e400", b"9"),
        *(b"9" * 400, b'"n":', b'"max_tokens":', b'"model":', b'"\\ud800"', b"NaN", b"\0"),
        *(b"\r", b"\n", b"\n\n", b"data:", b'tokens"', b"[DONE]", b"\xff\xfe", b"\xef\xbb\xbf"),
    ]
)
NOISE = (
    st.binary(max_size=80)
    | st.lists(PIECES, max_size=20).map(b"".join)
    | changes(len(GOOD_CALL), PIECES).map(lambda several: changed(GOOD_CALL, several))
    | st.tuples(st.sampled_from(paths_in(CALL)), anything).map(
        lambda one: json.dumps(replaced(CALL, *one)).encode("utf-8", "surrogatepass")
    )
)


def read(path: str, body: bytes, content_type: str | None = None) -> ModelRequest:
    """*body* is read, within bounds, and what it is charged can be computed."""
    with bounded():
        request = read_request(path, body, content_type)
        asking = with_usage_reported(body)
    assert request.prompt_bytes == len(body)
    assert request.output_tokens is None or 0 <= request.output_tokens <= MOST_TOKENS
    assert 1 <= request.completions <= MOST_TOKENS
    assert request.model is None or request.model.encode("utf-8")
    assert asking == body or read_request("/v1/chat/completions", asking).reports_usage
    for kind in KINDS:
        assert estimate(kind, request, default_output_tokens=100, prices=PRICES) >= 0
    return request


@settings(max_examples=fuzz_count(400))
@given(PATHS, NOISE, TYPES)
@example("/v1/embeddings", b'{"max_tokens": 5, "n": true}', None)
def test_any_body_is_a_call(path: str, body: bytes, content_type: str | None) -> None:
    read(path, body, content_type)


def check(usage: Usage | None) -> None:
    for kind in KINDS if usage else ():
        assert actual(kind, usage, "m", PRICES) >= 0  # type: ignore[arg-type]


@settings(max_examples=fuzz_count(400))
@given(
    st.binary(max_size=80)
    | changes(len(STREAM), PIECES).map(lambda several: changed(STREAM, several)),
    st.integers(1, 40),
    st.sampled_from([None, "gzip", "deflate", "br"]),
)
@example(b"Z\x00\x01", 1, "deflate")  # seven bytes, decompressed
def test_any_bytes_are_a_stream(body: bytes, size: int, encoding: str | None) -> None:
    reader = StreamReader(encoding)
    most = len(body) if encoding is None else MOST_EVENT_BYTES
    with bounded():
        for at in range(0, len(body), size):
            reader.feed(body[at : at + size])
            assert len(reader._buffer) <= most
        check(reader.finish())
        check(read_usage(body, encoding))


@settings(max_examples=fuzz_count(200))
@given(st.sampled_from(paths_in(ANSWER)), anything)
def test_any_json_is_a_response(path: tuple[Any, ...], value: Any) -> None:
    body = json.dumps(replaced(ANSWER, path, value)).encode("utf-8", "surrogatepass")
    with bounded():
        check(read_usage(body))
        reader = StreamReader()
        reader.feed(b"data: %s\n\n" % START.encode())
        reader.feed(b"data: %s\n\n" % body)
        check(reader.usage)


@settings(max_examples=fuzz_count(200))
@given(changes(200, PIECES), st.sampled_from([31, 15, -15]))
def test_damaged_compression_ends_without_a_usage_or_with_one(several: Changes, bits: int) -> None:
    body = changed(zlib.compress(STREAM, wbits=bits), several)
    name = "gzip" if bits == 31 else "deflate"
    with bounded():
        reader = StreamReader(name)
        reader.feed(body)
        check(reader.finish())
        check(read_usage(body, name))


@settings(max_examples=fuzz_count(200))
@given(st.text("ab*?[]", min_size=1, max_size=12), st.sampled_from("ab"))
@example("*a" * 40 + "b", "a")
def test_any_name_is_a_pattern_of_models(name: str, letter: str) -> None:
    with bounded():
        prices, model = Prices({"m": Price(5, 5), name: Price(1, 1)}), letter * 256
        assert prices.cost(model, Usage(10, 10)) <= prices.cost(None, Usage(10, 10))
        is_found = ModelPatterns([name]).matching(model) == [name]
        assert is_found == (prices.cost(model, Usage(10, 10)) == 20)


LARGEST = 10 * 1024 * 1024
HEAD = b'{"model": "m", "max_tokens": 5, "x": '
LARGE: dict[str, bytes] = {
    "text": HEAD + b'"' + b"x" * LARGEST + b'"}',
    "escapes": HEAD + b'"' + b"\\u00e9" * (LARGEST // 6) + b'"}',
    "lists": HEAD + b"[" + b"[]," * (LARGEST // 3) + b"[]]}",
    "objects": HEAD + b"[" + b'{"a":1},' * (LARGEST // 8) + b"{}]}",
    "floats": HEAD + b"[" + b"1.1," * (LARGEST // 4) + b"1]}",
    "nested lists": HEAD + b"[" * LARGEST,
    "nested objects": b'{"n":' * (LARGEST // 5),
    "members": b"{" + b'"n":1,' * (LARGEST // 6) + b'"n":1}',
    "digits": b'{"max_tokens": ' + b"9" * LARGEST + b"}",
    "quoted digits": b'{"max_tokens": "' + b"9" * LARGEST + b'"}',
    "blanks": b'{"max_tokens"' + b" " * LARGEST,
    "keys": b'"n"' * (LARGEST // 3),
    "stated": b'"n":1 ' * (LARGEST // 6),
    "noise": bytes(range(256)) * (LARGEST // 256),
    "lines": b"\n" * LARGEST,
    "events": b'data: tokens"\n\n' * (LARGEST // 15),
    "one event": b'data: "tokens" ' + b"x" * LARGEST,
}


@pytest.mark.parametrize("name", LARGE)
def test_work_is_in_proportion_to_the_largest_inputs(name: str) -> None:
    body = LARGE[name]
    with bounded(LARGEST_CPU_SECONDS):
        read_request("/v1/chat/completions", body)
        with_usage_reported(body)
        read_usage(body)
        reader = StreamReader()
        for at in range(0, len(body), 4096):
            reader.feed(body[at : at + 4096])
        assert len(reader._buffer) <= MOST_EVENT_BYTES
