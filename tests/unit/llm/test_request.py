"""What limits read in the body of a request, and how cautious they are about bad ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.llm import (
    ModelRequest,
    estimated_prompt_tokens,
    protocol_of,
    read_request,
    with_usage_reported,
)
from headgate.llm.request import MOST_TOKENS
from tests.examples import example_count

CHAT = "/v1/chat/completions"
LEGACY = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
EMBEDDINGS = "/v1/embeddings"
ASKING = '{"include_usage": true}'


def read(path: str = CHAT, /, **fields: Any) -> ModelRequest:
    return read_request(path, json.dumps(fields).encode())


def text(body: str, path: str = CHAT) -> ModelRequest:
    return read_request(path, body.encode())


def test_a_chat_call_states_model_output_and_stream() -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [], "max_tokens": 50, "stream": True})
    assert read_request(CHAT, body.encode(), "application/json") == ModelRequest(
        protocol="openai",
        prompt_bytes=len(body),
        model="gpt-4o",
        output_tokens=50,
        streams=True,
        reports_usage=False,
    )


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        (MESSAGES, "anthropic"),
        ("/v1/messages/?beta=true", "anthropic"),
        ("/anthropic/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        (CHAT, "openai"),
        (RESPONSES, "openai"),
        ("/v1/chat/completions?x=/messages", "openai"),
        ("", "openai"),
    ],
)
def test_the_path_tells_the_protocol(path: str, protocol: str) -> None:
    assert protocol_of(path) == protocol
    assert read(path).protocol == protocol


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "MAX_Tokens"]
)
def test_every_name_of_the_output_limit_counts(name: str) -> None:
    assert read(**{name: 70}).output_tokens == 70


def test_the_largest_of_several_output_limits_counts() -> None:
    assert read(max_tokens=5, max_completion_tokens=900, n_predict=70).output_tokens == 900


@pytest.mark.parametrize(
    ("fields", "completions"),
    [
        ({"n": 3}, 3),
        ({"best_of": 4}, 4),
        ({"n": 2, "best_of": 4}, 4),
        ({"prompt": "text"}, 1),
        ({"prompt": ["a", "b", "c"]}, 3),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]], "n": 5}, 10),
        ({"prompt": []}, 1),
        ({"n": 0}, 1),
        ({"n": -4}, 1),
        ({"n": 10**30, "prompt": ["a", "b"]}, MOST_TOKENS),
    ],
)
def test_output_counts_for_each_completion(fields: dict[str, Any], completions: int) -> None:
    unlimited, limited = read(LEGACY, **fields), read(LEGACY, **fields, max_tokens=20)
    assert (unlimited.completions, unlimited.output_tokens) == (completions, None)
    assert limited.output_tokens == min(20 * completions, MOST_TOKENS)


@pytest.mark.parametrize(
    ("stated", "read_as"),
    [
        ("100", 100),
        ('"100"', 100),
        ('" 1_000 "', 1000),
        ("1e2", 100),
        ("99.2", 100),
        ("1000000000000", MOST_TOKENS),
        ("1e400", MOST_TOKENS),
        ('"1e400"', MOST_TOKENS),
        ("Infinity", MOST_TOKENS),
        ("9" * 3_000, MOST_TOKENS),
        ("9" * 30_000, MOST_TOKENS),
        ("0", None),
        ("-1", None),
        ("-1e400", None),
        ("NaN", None),
        ("null", None),
        ("true", None),
        ("[100]", None),
        ('{"a": 100}', None),
        ('"many"', None),
        ('"%s"' % ("9" * 41), None),
    ],
)
def test_a_limit_is_read_as_the_most_that_a_server_may_take_it_for(
    stated: str, read_as: int | None
) -> None:
    assert text(f'{{"model": "m", "max_tokens": {stated}}}').output_tokens == read_as


def test_of_duplicate_limits_the_largest_counts() -> None:
    assert text('{"max_tokens": 900, "max_tokens": 1}').output_tokens == 900
    assert text('{"max_tokens": 1, "max_tokens": 900}').output_tokens == 900


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ('{"model": "a", "model": "a"}', "a"),
        ('{"model": "a", "model": "b"}', None),
        ('{"model": "a", "Model": "b"}', None),
        ('{"model": "a", "\\u006dodel": "b"}', None),
        ('{"model": "a", "model": null}', None),
        ('{"model": ""}', None),
        ('{"model": 4}', None),
        ('{"model": ["a"]}', None),
        ('{"model": "\\ud800"}', None),
        ('{"model": "a\\nb"}', None),
        ('{"model": "%s"}' % ("x" * 256), "x" * 256),
        ('{"model": "%s"}' % ("x" * 257), None),
        ("{}", None),
    ],
)
def test_a_model_that_is_not_clear_is_unknown(body: str, model: str | None) -> None:
    assert text(body).model == model


def test_a_deployment_in_the_path_is_the_model() -> None:
    path = "/openai/deployments/gpt-4o/chat/completions?api-version=1"
    assert read(path).model == "gpt-4o"
    assert read(path, model="gpt-4o").model == "gpt-4o"
    assert read(path, model="cheap").model is None


def test_embeddings_generate_nothing() -> None:
    assert read(EMBEDDINGS, input="text").output_tokens == 0
    assert read(EMBEDDINGS + "/?a=b", input="text").output_tokens == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (EMBEDDINGS, '{"messages": []}'),
        (EMBEDDINGS, '{"Prompt": "x"}'),
        (EMBEDDINGS, '{"input": "x"'),
        (CHAT + ";/embeddings", "{}"),
        (CHAT + "%23/embeddings", "{}"),
        (CHAT + "?/embeddings", "{}"),
        (RESPONSES, '{"input": "x"}'),
    ],
)
def test_a_call_that_may_generate_is_not_taken_for_embeddings(path: str, body: str) -> None:
    assert text(body, path).output_tokens is None


@pytest.mark.parametrize("value", [True, 1, "true", "no", [], {}])
def test_whatever_a_server_may_take_for_a_stream_is_one(value: object) -> None:
    assert read(stream=value).streams


@pytest.mark.parametrize("value", [False, None])
def test_a_call_that_does_not_stream_reports_its_usage(value: object) -> None:
    request = read(stream=value)
    assert not request.streams
    assert request.reports_usage


@pytest.mark.parametrize(
    ("path", "options", "reports"),
    [
        (CHAT, '"stream_options": {"include_usage": true}', True),
        (CHAT, '"stream_options": {"include_usage": true, "x": 1}', True),
        (CHAT, '"stream_options": {"include_usage": false}', False),
        (CHAT, '"stream_options": {"include_usage": 1}', False),
        (CHAT, '"stream_options": null', False),
        (CHAT, '"stream_options": {"include_usage": true}, "stream_options": null', False),
        (CHAT, '"Stream_Options": {"include_usage": true}', False),
        (RESPONSES, '"a": 1', True),
        (MESSAGES, '"a": 1', True),
    ],
)
def test_a_stream_of_openai_reports_usage_if_it_is_asked_to(
    path: str, options: str, reports: bool
) -> None:
    assert text(f'{{"stream": true, {options}}}', path).reports_usage is reports


@pytest.mark.parametrize(
    "body",
    [
        '{"model": "m", "max_tokens": 900, "n": 2',
        '{"model": "m", "max_tokens": 900, "n": 2,}',
        "{'model': 'm', \"max_tokens\" : 900, \"n\": 2}",
        '[{"model": "m", "max_tokens": 900, "n": 2}]',
        f'{{"x": {"[" * 100_000}, "model": "m", "max_tokens": "900", "N": 2}}',
        '{"x": %s, "model": "m", "max_tokens": 900, "n": 2}' % ("9" * 5_000),
        '{"model": "m", "max_tokens": 900, "max_tokens": 1, "n": 2, "x": }',
    ],
)
def test_limits_of_a_body_that_is_not_readable_count_wherever_they_stand(body: str) -> None:
    request = text(body)
    assert not request.is_readable
    assert (request.model, request.output_tokens, request.completions) == (None, 1800, 2)


def test_a_body_with_more_limits_than_a_call_has_counts_as_the_largest() -> None:
    request = text('{"max_tokens": 1, %s}' % ('"n": 1,' * 2_000))
    assert (request.output_tokens, request.streams) == (MOST_TOKENS, True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_bodies_are_read_in_the_encodings_that_json_readers_detect(encoding: str) -> None:
    request = read_request(CHAT, '{"model": "é", "max_tokens": 7}'.encode(encoding))
    assert (request.model, request.output_tokens) == ("é", 7)


def test_invalid_utf8_in_a_prompt_hides_nothing() -> None:
    request = read_request(CHAT, b'{"messages": "\xff", "model": "m", "max_tokens": 7}')
    assert (request.is_readable, request.model, request.output_tokens) == (True, "m", 7)


def test_what_follows_the_object_is_ignored_as_some_servers_do() -> None:
    request = text('{"model": "m", "max_tokens": 7} {"max_tokens": 1}')
    assert (request.is_readable, request.output_tokens) == (True, 7)


def test_a_form_is_not_searched() -> None:
    body = b'--x\r\n\r\n"max_tokens": 5\r\n--x--'
    request = read_request(CHAT, body, "Multipart/form-data; boundary=x")
    assert request == ModelRequest("openai", len(body), is_readable=False)
    assert read_request(CHAT, b'{"max_tokens": 5}', "multipart/form-data").output_tokens == 5


def test_a_request_without_a_body_generates_nothing() -> None:
    assert read_request("/v1/models", b"") == ModelRequest(
        "openai", 0, output_tokens=0, is_readable=False
    )


def test_the_estimate_of_a_prompt_is_bytes_by_four_rounded_up() -> None:
    assert [estimated_prompt_tokens(size) for size in (0, 1, 4, 5, 4000)] == [0, 1, 1, 2, 1000]
    assert estimated_prompt_tokens(10, bytes_per_token=3) == 4
    assert estimated_prompt_tokens(10**30) == MOST_TOKENS


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (
            '{ "stream":true , "model" : "m" }\n',
            '{ "stream":true , "model" : "m", "stream_options": {"include_usage": true} }\n',
        ),
        (
            '{"stream_options": {"x": [1]}, "stream": true, "é": "\\u00e9"}',
            '{"stream_options": {"x": [1], "include_usage": true}, "stream": true, "é": "\\u00e9"}',
        ),
        (
            '{"stream": true, "stream_options": null, "stream_options": {"include_usage": 0}}',
            f'{{"stream": true, "stream_options": {ASKING}, "stream_options": {ASKING}}}',
        ),
    ],
)
def test_usage_is_asked_for_and_all_else_stays_as_it_is(body: str, result: str) -> None:
    assert with_usage_reported(body.encode()).decode() == result
    assert text(result).reports_usage


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream": true, "stream_options": {"include_usage":true}}',
        b'{"stream": false}',
        b'{"stream": 1}',
        b"{}",
        b"[]",
        b'{"stream": true',
        b'{"stream": true, "x": "\xff"}',
        '{"stream": true}'.encode("utf-16"),
        b"",
    ],
)
def test_a_body_that_cannot_ask_for_usage_or_does_so_stays_as_it_is(body: bytes) -> None:
    assert with_usage_reported(body) == body


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
objects = st.dictionaries(
    st.text(max_size=5) | st.sampled_from(["model", "stream", "stream_options"]), values
)


@settings(max_examples=example_count(400))
@given(objects, st.sampled_from([None, 1, "\t"]), st.booleans())
@example({"stream": True}, None, True)
def test_asking_for_usage_changes_nothing_else(
    call: dict[str, Any], indent: int | str | None, is_ascii: bool
) -> None:
    call["stream"] = True
    body = json.dumps(call, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "replace")
    changed = with_usage_reported(body)
    before = json.loads(body)
    options = before.get("stream_options")
    stated = options if isinstance(options, dict) else {}
    assert json.loads(changed) == before | {"stream_options": {**stated, "include_usage": True}}
    assert read_request(CHAT, changed).reports_usage
    assert with_usage_reported(changed) == changed


pairs: st.SearchStrategy[list[tuple[str, Any]]] = st.lists(
    st.tuples(
        st.sampled_from(["max_tokens", "max_completion_tokens", "n", "model", "stream", "a"]),
        st.integers(-5, 5000) | st.sampled_from(["5", "m", 2.5, None, True, [], [[{}]]]),
    ),
    max_size=6,
)


@settings(max_examples=example_count(800))
@given(pairs, st.sampled_from(["", " ", "\n\t"]))
def test_no_reading_of_duplicates_is_dearer_than_ours(
    stated: list[tuple[str, Any]], space: str
) -> None:
    """The oracle takes the first, or the last, of each key as JSON readers do."""
    members = [f"{space}{json.dumps(key)}{space}:{json.dumps(value)}" for key, value in stated]
    ours = text("{" + ",".join(members) + "}")
    for several in (stated, stated[::-1]):
        reading = dict(several)
        one = read(**reading)
        assert (ours.output_tokens or 0) >= (one.output_tokens or 0)
        assert ours.completions >= one.completions
        assert ours.model in (None, reading.get("model"))
        assert ours.streams or not one.streams
