"""The SDKs of OpenAI and Anthropic behind our transports, before an upstream of ours."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from headgate.clients import NotSentError, RetryPolicy
from headgate.clients.httpx2 import AsyncPacedTransport, PacedTransport
from headgate.engine.request import Request
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from headgate.stores.memory import MemoryStore
from tests.support.llm_upstream import Behaviour, LlmUpstream, llm_upstream
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 2000
POLICY = f"""
version: 1
rules:
  - id: tokens
    match: {{endpoint: /v1/**}}
    key_by: ip
    limit: {LIMIT}/day strict
    cost: {{llm: tokens}}
"""
SAID: Any = [{"role": "user", "content": "hello " * 20}]
ASKED: Any = {"model": "m", "messages": SAID, "max_tokens": 500}


class Budget:
    """The tokens of the policy that are left, in a store that clients share."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._engine = RuleEngine(read_policy(POLICY), store=self.store, namespace="outgoing")

    @property
    def used(self) -> int:
        verdict = self._engine.peek(Request("POST", "/v1/messages"), cost=0)
        return LIMIT - verdict.rules[0].decision.remaining

    @property
    def options(self) -> Any:
        retry = RetryPolicy(max_wait=0)
        return {"policy": read_policy(POLICY), "store": self.store, "retry": retry}


@pytest.fixture
def budget() -> Budget:
    return Budget()


@contextmanager
def openai_client(upstream: LlmUpstream, budget: Budget, **options: Any) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(transport=PacedTransport(**{**budget.options, **options}))
    url = f"{upstream.url}/v1"
    with openai.OpenAI(base_url=url, api_key="any", http_client=http, max_retries=0) as client:
        yield client


@contextmanager
def anthropic_client(upstream: LlmUpstream, budget: Budget) -> Iterator[anthropic.Anthropic]:
    http = httpx2.Client(transport=PacedTransport(**budget.options))
    with anthropic.Anthropic(
        base_url=upstream.url, api_key="any", http_client=http, max_retries=0
    ) as client:
        yield client


def test_openai_is_charged_what_it_used(budget: Budget) -> None:
    with llm_upstream() as upstream, openai_client(upstream, budget) as client:
        client.chat.completions.create(**ASKED)
        assert budget.used == upstream.tokens
        with client.chat.completions.create(
            **ASKED, stream=True, stream_options={"include_usage": True}
        ) as stream:
            assert [chunk.usage for chunk in stream][-1] is not None
        assert budget.used == upstream.tokens


def test_anthropic_is_charged_what_it_used(budget: Budget) -> None:
    with llm_upstream() as upstream, anthropic_client(upstream, budget) as client:
        client.messages.create(**ASKED)
        assert budget.used == upstream.tokens
        with client.messages.stream(**ASKED) as stream:
            assert stream.get_final_message().usage.output_tokens == 5
        assert budget.used == upstream.tokens


def test_async_clients_are_charged_what_they_used(budget: Budget) -> None:
    async def story(url: str) -> None:
        http = httpx2.AsyncClient(transport=AsyncPacedTransport(**budget.options))
        async with openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="any", http_client=http
        ) as client:
            await client.chat.completions.create(**ASKED)
            stream = await client.chat.completions.create(
                **ASKED, stream=True, stream_options={"include_usage": True}
            )
            assert len([chunk async for chunk in stream]) == 6
        http = httpx2.AsyncClient(transport=AsyncPacedTransport(**budget.options))
        async with (
            anthropic.AsyncAnthropic(base_url=url, api_key="any", http_client=http) as claude,
            claude.messages.stream(**ASKED) as events,
        ):
            await events.get_final_message()

    with llm_upstream() as upstream:
        asyncio.run(story(upstream.url))
        assert len(upstream.calls) == 3
        assert budget.used == upstream.tokens


def test_a_stream_that_states_no_usage_is_asked_for_it(budget: Budget) -> None:
    with llm_upstream() as upstream:
        with openai_client(upstream, budget, include_usage=True) as client:
            list(client.chat.completions.create(**ASKED, stream=True))
            assert budget.used == upstream.tokens
        with openai_client(upstream, budget) as client:
            list(client.chat.completions.create(**ASKED, stream=True))
            assert budget.used > 500 + upstream.calls[0].tokens


@pytest.mark.parametrize("encoding", [False, True])
def test_chunks_arrive_while_the_upstream_still_waits(budget: Budget, encoding: bool) -> None:
    behaviour = Behaviour(hold_after=2, compress=encoding)
    with llm_upstream(behaviour) as upstream, openai_client(upstream, budget) as client:
        stream = client.chat.completions.create(
            **ASKED, stream=True, stream_options={"include_usage": True}
        )
        chunks = iter(stream)
        first = [next(chunks), next(chunks)]
        assert not upstream.gate.is_set()
        assert budget.used > 500  # what is reserved
        upstream.gate.set()
        assert len([*first, *chunks]) == 6
        assert budget.used == upstream.tokens


def test_a_stream_that_is_closed_early_is_charged_its_estimate(budget: Budget) -> None:
    with llm_upstream(Behaviour(hold_after=2)) as upstream:
        with openai_client(upstream, budget) as client:
            stream = client.chat.completions.create(**ASKED, stream=True)
            next(iter(stream))
            stream.close()
            assert budget.used > 500
        upstream.gate.set()
        wait_until(lambda: bool(upstream.calls), "the call has arrived")


@pytest.mark.parametrize("how", ["reset", "cut", "status"])
def test_a_response_that_fails(budget: Budget, how: Any) -> None:
    with llm_upstream(Behaviour(fail=how)) as upstream, openai_client(upstream, budget) as client:
        with pytest.raises((httpx2.TransportError, openai.APIError)):
            list(client.chat.completions.create(**ASKED, stream=True))
        assert (budget.used > 500) == (how != "status")


def test_an_upstream_that_is_gone_costs_nothing(budget: Budget) -> None:
    with llm_upstream() as upstream:
        pass
    with openai_client(upstream, budget) as client, pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(**ASKED)
    assert budget.used == 0


def test_a_call_beyond_the_budget_is_not_sent_and_says_why(budget: Budget) -> None:
    with llm_upstream() as upstream, openai_client(upstream, budget) as client:
        with pytest.raises(openai.APIConnectionError) as caught:
            client.chat.completions.create(**{**ASKED, "max_tokens": LIMIT})
        assert isinstance(caught.value.__cause__, NotSentError)
        assert caught.value.__cause__.cause == "policy"
        assert not upstream.calls
