"""The usage that responses state, plain and streamed."""

from __future__ import annotations

import gzip
import json
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.llm import StreamReader, Usage, read_usage
from headgate.llm.usage import MOST_DECODED_BYTES, MOST_EVENT_BYTES
from tests.examples import example_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHAT = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def body(usage: object) -> bytes:
    return json.dumps({"id": "x", "choices": [], "usage": usage}).encode()


def event(data: object, name: str | None = None, end: str = "\n") -> bytes:
    head = f"event: {name}{end}" if name else ""
    written = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"{head}data: {written}{end}{end}".encode()


def streamed(chunks: Iterable[bytes], content_encoding: str | None = None) -> StreamReader:
    reader = StreamReader(content_encoding)
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader


def word(text: str, **more: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"delta": {"content": text}}], **more}


OPENAI = [
    event(word("Hello", usage=None)),
    event(word(' "usage": {"prompt_tokens": 1, "completion_tokens": 1}\n\ndata: ', usage=None)),
    b": a comment\n\n",
    event({"choices": [], "usage": CHAT}),
    event("[DONE]"),
]
ANTHROPIC = [
    event(
        {
            "type": "message_start",
            "message": {
                "usage": {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 60,
                    "cache_creation_input_tokens": 30,
                    "output_tokens": 1,
                }
            },
        },
        "message_start",
    ),
    event({"type": "ping"}, "ping"),
    event({"type": "content_block_delta", "delta": {"text": 'tokens"'}}, "content_block_delta"),
    event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 20, "input_tokens": None},
        },
        "message_delta",
    ),
    event({"type": "message_stop"}, "message_stop"),
]
RESPONSES = [
    event({"type": "response.created", "response": {"usage": None}}, "response.created"),
    event({"type": "response.output_text.delta", "delta": "tokens"}),
    event(
        {
            "type": "response.completed",
            "response": {
                "usage": {
                    "input_tokens": 100,
                    "input_tokens_details": {"cached_tokens": 60},
                    "output_tokens": 20,
                    "total_tokens": 120,
                }
            },
        }
    ),
]


@pytest.mark.parametrize(
    ("stated", "usage"),
    [
        (CHAT, Usage(100, 20)),
        (
            {**CHAT, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}},
            Usage(100, 20, 60, 30),
        ),
        ({"prompt_tokens": 7, "total_tokens": 7}, Usage(7, 0)),
        ({"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}, Usage(9, 4)),
        (
            {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}},
            Usage(9, 4, 5),
        ),
        ({"input_tokens": 10, "output_tokens": 20}, Usage(10, 20)),
        (
            {
                "input_tokens": 10,
                "output_tokens": 20,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
            },
            Usage(100, 20, 60, 30),
        ),
        (
            {
                "input_tokens": 10,
                "output_tokens": 20,
                "cache_read_input_tokens": None,
                "cache_creation_input_tokens": 30,
            },
            Usage(40, 20, 0, 30),
        ),
    ],
)
def test_the_usage_of_both_protocols_is_read(stated: object, usage: Usage) -> None:
    assert read_usage(body(stated)) == usage


def test_cached_tokens_that_a_proxy_states_twice_count_once() -> None:
    stated = {
        **CHAT,
        "prompt_tokens_details": {"cached_tokens": 60},
        "cache_read_input_tokens": 60,
    }
    assert read_usage(body(stated)) == Usage(100, 20, 60)


def test_reasoning_that_is_only_in_the_total_counts_as_output() -> None:
    assert read_usage(body({**CHAT, "total_tokens": 500})) == Usage(100, 400)
    assert read_usage(body({**CHAT, "total_tokens": 5})) == Usage(100, 20)


def test_more_cached_tokens_than_input_are_cut() -> None:
    details = {"cached_tokens": 80, "cache_write_tokens": 80}
    stated = {**CHAT, "prompt_tokens_details": details}
    assert read_usage(body(stated)) == Usage(100, 20, 80, 20)


BAD_COUNTS = [-1, 1.0, True, "5", [], 10**9 + 1, 10**400]


@pytest.mark.parametrize("count", [*BAD_COUNTS, None])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_usage_with_a_figure_that_cannot_be_is_unknown(name: str, count: object) -> None:
    assert read_usage(body({**CHAT, name: count})) is None


@pytest.mark.parametrize("count", BAD_COUNTS)
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cache_read_input_tokens"])
def test_the_same_of_anthropic(name: str, count: object) -> None:
    stated = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 1, name: count}
    if count:  # an empty list is no figure of the cache
        assert read_usage(body(stated)) is None


@pytest.mark.parametrize("count", BAD_COUNTS)
def test_damaged_details_count_as_uncached_input(count: object) -> None:
    details = {"cached_tokens": count, "cache_write_tokens": count}
    assert read_usage(body({**CHAT, "prompt_tokens_details": details})) == Usage(100, 20)
    assert read_usage(body({**CHAT, "prompt_tokens_details": count})) == Usage(100, 20)
    assert read_usage(body({**CHAT, "total_tokens": count})) == Usage(100, 20)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"{}",
        b"[]",
        b'"tokens"',
        b'{"usage": null, "a_tokens": 1}',
        b'{"usage": {"total_tokens": 5}}',
        b'{"usage": [1], "tokens": 1}',
        b'{"choices": [{"usage": {"prompt_tokens": 1, "completion_tokens": 1}}]}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": %s}}' % (b"9" * 5_000),
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1}, "x": "\xff"}',
        b'{"a_tokens":' + b"[" * 100_000,
    ],
)
def test_a_body_without_a_usage_has_none(plain: bytes) -> None:
    assert read_usage(plain) is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("events", "usage"),
    [
        (OPENAI, Usage(100, 20)),
        (ANTHROPIC, Usage(100, 20, 60, 30)),
        (RESPONSES, Usage(100, 20, 60)),
    ],
)
def test_a_stream_states_its_usage_in_chunks_of_any_size(
    events: list[bytes], usage: Usage, end: str, size: int
) -> None:
    whole = b"".join(events).replace(b"\n", end.encode())
    reader = streamed(whole[at : at + size] for at in range(0, len(whole), size))
    assert (reader.usage, reader.is_final) == (usage, True)


def test_what_a_model_writes_is_no_usage() -> None:
    assert streamed(OPENAI[:2]).usage is None


def test_an_event_may_have_several_lines_of_data() -> None:
    lines = json.dumps({"choices": [], "usage": CHAT}, indent=1).splitlines()
    text = "id: 4\nretry: 10\n" + "".join(f"data:{line}\n" for line in lines) + "\n"
    assert streamed([text.encode()]).usage == Usage(100, 20)


def test_the_last_usage_of_a_stream_counts_and_is_final_with_the_last_event() -> None:
    reader = StreamReader()
    for output in (1, 2, 3):
        reader.feed(event(word("a", usage={**CHAT, "completion_tokens": output})))
        assert (reader.usage, reader.is_final) == (Usage(100, 20), False)
    reader.feed(event(word("a", usage={"prompt_tokens": 100, "completion_tokens": 30})))
    assert (reader.usage, reader.is_final) == (Usage(100, 30), False)
    reader.feed(event("[DONE]"))
    assert (reader.usage, reader.is_final) == (Usage(100, 30), True)


@pytest.mark.parametrize(
    "bad",
    [
        {"usage": None, "a_tokens": 1},
        {"usage": {**CHAT, "prompt_tokens": -1}},
        {"response": {"usage": None}, "usage": {**CHAT, "prompt_tokens": 1}},
        ["tokens"],
        '{"usage": {"prompt_tokens": 1, "completion_tokens": 1}',
    ],
)
def test_a_usage_that_is_null_or_damaged_does_not_replace_the_last(bad: object) -> None:
    good = event({"choices": [], "usage": CHAT})
    reader = streamed([good, event(bad)])
    assert (reader.usage, reader.is_final) == (Usage(100, 20), True)


def test_a_stream_of_anthropic_that_was_cut_states_no_usage() -> None:
    """`message_start` has one output token, a placeholder."""
    reader = streamed(ANTHROPIC[:3])
    assert (reader.usage, reader.is_final) == (None, False)


def test_the_usage_of_anthropic_is_final_once_the_model_has_stopped() -> None:
    delta = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}
    reader = streamed([ANTHROPIC[0], event(delta)])
    assert (reader.usage, reader.is_final) == (Usage(100, 5, 60, 30), False)
    reader.feed(ANTHROPIC[3])
    assert (reader.usage, reader.is_final) == (Usage(100, 20, 60, 30), True)


def test_later_input_figures_of_anthropic_replace_those_of_the_start() -> None:
    delta = {"delta": {"stop_reason": "x"}, "usage": {"output_tokens": 5, "input_tokens": 200}}
    assert streamed([ANTHROPIC[0], event(delta)]).usage == Usage(290, 5, 60, 30)


def test_the_end_of_a_stream_ends_its_last_event() -> None:
    last = event({"choices": [], "usage": CHAT})
    for cut in range(3):
        assert streamed([last[: len(last) - cut]]).usage == Usage(100, 20)
    assert streamed([last[:-4]]).usage is None


def test_a_stream_that_is_done_without_a_usage_has_none() -> None:
    reader = streamed([event(word("a")), event("[DONE]")])
    assert (reader.usage, reader.is_final) == (None, False)


@pytest.mark.parametrize("size", [1 << 16, 1 << 20, 1 << 30])
def test_an_event_beyond_the_bound_is_skipped_and_what_follows_is_read(size: int) -> None:
    small = event({"choices": [], "usage": CHAT})
    large = event({"usage": {**CHAT, "prompt_tokens": 1}, "x": "y" * MOST_EVENT_BYTES})
    whole = small + large
    reader, most = StreamReader(), 0
    for at in range(0, len(whole), size):
        reader.feed(whole[at : at + size])
        most = max(most, len(reader._buffer))
    assert reader.usage == Usage(100, 20)
    assert most <= MOST_EVENT_BYTES
    reader.feed(event({"usage": {**CHAT, "prompt_tokens": 2}}))
    assert reader.finish() == Usage(2, 118)


def test_a_large_event_within_the_bound_is_read() -> None:
    large = event({"usage": CHAT, "x": "y" * (MOST_EVENT_BYTES - 1000)})
    assert streamed(large[at : at + 65_536] for at in range(0, len(large), 65_536)).usage
    other = event({"tokens": "y" * (MOST_EVENT_BYTES // 2)})
    assert streamed([other + large]).usage


ENCODED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    (" X-GZIP ", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", lambda data: zlib.compress(data, wbits=-15)),
    ("identity", lambda data: data),
    ("", lambda data: data),
]


@pytest.mark.parametrize(("name", "compress"), ENCODED)
def test_compressed_responses_are_read(name: str, compress: Callable[[bytes], bytes]) -> None:
    assert read_usage(compress(body(CHAT)), name) == Usage(100, 20)
    whole = compress(b"".join(OPENAI))
    for size in (1, 5, 1000):
        reader = streamed((whole[at : at + size] for at in range(0, len(whole), size)), name)
        assert (reader.usage, reader.is_final) == (Usage(100, 20), True)


def test_a_compressed_stream_is_read_while_it_flows() -> None:
    encoder = zlib.compressobj(wbits=31)
    reader = StreamReader("gzip")
    for one in OPENAI[:4]:
        reader.feed(encoder.compress(one) + encoder.flush(zlib.Z_SYNC_FLUSH))
    assert reader.usage == Usage(100, 20)


@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip", "gzip", "deflate"])
def test_what_cannot_be_decompressed_has_no_usage(name: str) -> None:
    assert read_usage(body(CHAT), name) is None
    assert streamed(OPENAI, name).usage is None


def test_a_usage_before_damage_is_not_kept() -> None:
    encoder = zlib.compressobj(wbits=31)
    reader = StreamReader("gzip")
    whole = encoder.compress(OPENAI[3]) + encoder.flush(zlib.Z_SYNC_FLUSH)
    assert streamed([whole], "gzip").usage == Usage(100, 20)
    reader.feed(whole + encoder.compress(b"data: x") + encoder.flush(zlib.Z_SYNC_FLUSH))
    reader.feed(b"\xff" * 20)
    assert not reader._buffer
    assert reader.finish() is None
    assert not reader.is_final


def test_what_follows_a_compressed_body_is_ignored() -> None:
    reader = streamed([gzip.compress(b"".join(OPENAI)), b"noise", b""], "gzip")
    assert reader.usage == Usage(100, 20)


def test_a_compressed_body_is_decompressed_up_to_a_bound() -> None:
    blank = b"\n" * (MOST_DECODED_BYTES + 1)
    assert read_usage(gzip.compress(blank[: len(blank) // 4] + body(CHAT)), "gzip") == Usage(
        100, 20
    )
    bomb = gzip.compress(blank + body(CHAT))
    assert len(bomb) < 100_000
    assert read_usage(bomb, "gzip") is None
    reader = streamed([gzip.compress(b"".join(OPENAI) + blank)], "gzip")
    assert reader.usage is None


pieces = st.sampled_from(
    [
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b"data:", b"data: ", b"event: x"),
        *OPENAI,
        *ANTHROPIC,
        *RESPONSES,
        *(b'data: {"usage":', b'"tokens"', b"[DONE]", b"data: [DONE]", b"\xef\xbb\xbf", b"\0"),
    ]
)


@settings(max_examples=example_count(800))
@given(st.lists(pieces, max_size=12), st.lists(st.integers(0, 600), max_size=12))
@example([OPENAI[3].replace(b"\n", b"\r\n"), b"data: [DONE]", b"\r\n"], [len(OPENAI[3])])
@example([b"\r", b"\n", OPENAI[3]], [1, 2])
def test_the_bounds_of_chunks_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(parts)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    chunks = [whole[a:b] for a, b in pairwise(places)]
    once, several = streamed([whole]), streamed(chunks)
    single = streamed(whole[at : at + 1] for at in range(len(whole)))
    assert (once.usage, once.is_final) == (several.usage, several.is_final)
    assert (once.usage, once.is_final) == (single.usage, single.is_final)
