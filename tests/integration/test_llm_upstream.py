"""The language-model server of the tests speaks both protocols, and fails as it is told to."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.llm_upstream import (
    CHAT,
    MESSAGES,
    Behaviour,
    Call,
    LlmUpstream,
    control,
    llm_upstream,
)

ASKED = {"model": "m", "max_tokens": 3, "messages": [{"role": "user", "content": "hello"}]}
STREAM = {**ASKED, "stream": True}
WITH_USAGE = {**STREAM, "stream_options": {"include_usage": True}}


def answer(
    upstream: LlmUpstream, path: str, asked: dict[str, Any], how: Behaviour | None = None
) -> httpx.Response:
    headers = {} if how is None else control(how)
    return httpx.post(upstream.url + path, json=asked, headers=headers)


def events(text: str) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def test_usage_is_what_the_upstream_counts_as_sent() -> None:
    with llm_upstream() as upstream:
        chat = answer(upstream, CHAT, ASKED).json()["usage"]
        message = answer(upstream, MESSAGES, ASKED).json()["usage"]
        streamed = events(answer(upstream, CHAT, WITH_USAGE).text)[-1]["usage"]
        parts = events(answer(upstream, MESSAGES, STREAM).text)
        calls = upstream.calls
    assert [one.output_tokens for one in calls] == [3, 3, 3, 3]
    assert chat["total_tokens"] == streamed["total_tokens"] == calls[0].tokens
    assert message["input_tokens"] + message["output_tokens"] == calls[1].tokens
    assert parts[0]["message"]["usage"]["input_tokens"] == calls[3].prompt_tokens
    assert parts[-2]["usage"] == {"output_tokens": 3}


def test_a_stream_has_usage_only_if_it_is_asked_for() -> None:
    with llm_upstream() as upstream:
        plain = events(answer(upstream, CHAT, STREAM).text)
        each = events(answer(upstream, CHAT, STREAM, Behaviour(usage="each")).text)
    assert not any("usage" in one for one in plain)
    assert [one["usage"]["completion_tokens"] for one in each] == [1, 2, 3, 3]


def test_the_form_of_a_stream_does_not_change_its_events() -> None:
    forms = [
        Behaviour(newline="crlf"),
        Behaviour(piece=7),
        Behaviour(newline="crlf", piece=1),
        Behaviour(compress=True),
    ]
    with llm_upstream() as upstream:
        usual = answer(upstream, CHAT, WITH_USAGE).text
        others = [answer(upstream, CHAT, WITH_USAGE, one).text for one in forms]
    assert [events(one) for one in others] == [events(usual)] * len(forms)


@pytest.mark.parametrize("failure", ["reset", "cut"])
@pytest.mark.parametrize("asked", [ASKED, STREAM])
def test_a_failure_ends_a_response_early(failure: Any, asked: dict[str, Any]) -> None:
    with llm_upstream(Behaviour(fail=failure)) as upstream:
        with pytest.raises(httpx.TransportError):
            answer(upstream, CHAT, asked)
        (call,) = upstream.calls
    assert not call.is_complete


@pytest.mark.parametrize(
    ("path", "body", "status"), [(CHAT, b"[]", 400), (MESSAGES, b"{", 400), ("/other", b"{}", 404)]
)
def test_requests_that_are_not_understood_are_rejected(path: str, body: bytes, status: int) -> None:
    with llm_upstream() as upstream:
        assert httpx.post(upstream.url + path, content=body).status_code == status
        assert upstream.tokens == 0


def test_a_call_is_recorded_as_it_arrived() -> None:
    with llm_upstream() as upstream:
        answer(upstream, CHAT, ASKED)
        (call,) = upstream.calls
    assert isinstance(call, Call)
    assert (call.path, json.loads(call.body), call.is_complete) == (CHAT, ASKED, True)
