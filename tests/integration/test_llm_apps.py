"""Apps before a language model, on uvicorn, called by the SDKs of OpenAI and Anthropic."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request as WebRequest  # noqa: TC002 (read by the framework)
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headgate.engine.request import Request
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from headgate.stores.memory import MemoryStore
from tests.support.llm_upstream import Behaviour, LlmUpstream, llm_upstream
from tests.support.servers import wait_until
from tests.support.uvicorn_apps import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LIMIT = 2000
POLICY = f"""
version: 1
rules:
  - id: tokens
    match: {{endpoint: [/v1/chat/completions, /v1/messages]}}
    key_by: tenant
    limit: {LIMIT}/day strict
    cost: {{llm: tokens}}
  - {{id: requests, match: {{endpoint: /v1/**}}, key_by: tenant, limit: 20/minute}}
"""
TENANT = {"x-tenant-id": "a"}
SAID: Any = [{"role": "user", "content": "hello " * 20}]
ASKED: Any = {"model": "m", "messages": SAID, "max_tokens": 500}
USAGE: Any = {"stream": True, "stream_options": {"include_usage": True}}
PASSED = ("content-type", "content-encoding")


async def endpoint(request: WebRequest) -> Response:
    """Pass a request on, and its response as it comes."""
    client: httpx.AsyncClient = request.app.state.client
    headers = {name: value for name, value in request.headers.items() if name[:2] == "x-"}
    asked = client.build_request(
        "POST", request.url.path, content=await request.body(), headers=headers
    )
    answer = await client.send(asked, stream=True)

    async def parts() -> AsyncIterator[bytes]:
        try:
            async for part in answer.aiter_raw():
                yield part
        finally:
            await answer.aclose()

    lines = {name: answer.headers[name] for name in PASSED if name in answer.headers}
    return StreamingResponse(parts(), answer.status_code, lines)


class Setup:
    """An app of a framework that passes calls on to *upstream*, while it is served."""

    def __init__(self, framework: str, upstream: LlmUpstream, text: str, *limits: Any) -> None:
        self.upstream = upstream
        self.store = MemoryStore()
        policy = read_policy(text)
        self._engine = RuleEngine(policy, store=self.store)

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            async with httpx.AsyncClient(base_url=upstream.url, timeout=60) as client:
                app.state.client = client
                yield

        paths = ("/v1/chat/completions", "/v1/messages")
        self.app: Any
        if framework == "fastapi":
            self.app = FastAPI(dependencies=limits, lifespan=lifespan)
            for path in paths:
                self.app.add_api_route(path, endpoint, methods=["POST"], response_model=None)
        else:
            routes = [Route(path, endpoint, methods=["POST"]) for path in paths]
            self.app = Starlette(routes=routes, lifespan=lifespan)
        self.app.add_middleware(RateLimitMiddleware, policy=policy, store=self.store)
        self.url = ""

    @property
    def used(self) -> int:
        """The tokens that are charged or reserved."""
        headers = tuple(TENANT.items())
        request = Request("POST", "/v1/messages", headers=headers)
        tokens, _ = self._engine.peek(request, cost=0).rules
        return LIMIT - tokens.decision.remaining

    def openai(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key="any", default_headers=TENANT, **options
        )

    def anthropic(self, **options: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            base_url=self.url, api_key="any", default_headers=TENANT, **options
        )


@contextmanager
def setup(
    framework: str = "fastapi",
    *limits: Any,
    behaviour: Behaviour | None = None,
    text: str = POLICY,
) -> Iterator[Setup]:
    with llm_upstream(behaviour) as upstream:
        made = Setup(framework, upstream, text, *limits)
        with serving(made.app) as url:
            made.url = url
            yield made
            upstream.gate.set()


frameworks = pytest.mark.parametrize("framework", ["fastapi", "starlette"])


@frameworks
def test_calls_of_both_sdks_are_charged_what_they_used(framework: str) -> None:
    with setup(framework) as served, served.openai() as client, served.anthropic() as claude:
        client.chat.completions.create(**ASKED)
        assert len(list(client.chat.completions.create(**ASKED, **USAGE))) == 6
        claude.messages.create(**ASKED)
        with claude.messages.stream(**ASKED) as stream:
            assert stream.get_final_message().usage.output_tokens == 5
        assert len(served.upstream.calls) == 4
        assert served.used == served.upstream.tokens


@frameworks
@pytest.mark.parametrize("compress", ["true", "false"])
def test_chunks_arrive_while_the_upstream_still_waits(framework: str, compress: str) -> None:
    held = Behaviour(hold_after=2)
    with setup(framework, behaviour=held) as served, served.openai() as client:
        extra = {"x-llm-compress": compress}
        chunks = iter(client.chat.completions.create(**ASKED, **USAGE, extra_headers=extra))
        first = [next(chunks), next(chunks)]
        assert not served.upstream.gate.is_set()
        assert served.used > 500
        served.upstream.gate.set()
        assert len([*first, *chunks]) == 6
        assert served.used == served.upstream.tokens


@frameworks
def test_a_client_that_hangs_up_is_charged_its_estimate(framework: str) -> None:
    held = Behaviour(hold_after=2)
    with setup(framework, behaviour=held) as served:
        with served.openai() as client:
            stream = client.chat.completions.create(**ASKED, **USAGE)
            next(iter(stream))
            reserved = served.used
            stream.close()
        wait_until(lambda: not served.upstream.calls[0].is_complete, "the upstream waits")
        with served.openai() as client:  # the app goes on
            served.upstream.gate.set()
            client.chat.completions.create(**ASKED)
        last = served.upstream.calls[-1].tokens
        wait_until(lambda: served.used == reserved + last, "the estimate is charged")


@pytest.mark.parametrize("how", ["reset", "cut"])
def test_an_upstream_that_dies_mid_stream_is_charged_its_estimate(how: Any) -> None:
    with setup(behaviour=Behaviour(fail=how)) as served, served.openai() as client:
        with pytest.raises((openai.APIError, httpx2.TransportError)):
            list(client.chat.completions.create(**ASKED, **USAGE))
        wait_until(lambda: served.used > 500, "the estimate is charged")


def test_an_error_of_the_upstream_costs_nothing() -> None:
    with setup(behaviour=Behaviour(fail="status")) as served:
        with served.openai(max_retries=0) as client, pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**ASKED)
        assert served.used == 0


def test_a_denial_is_a_rate_limit_error_of_either_sdk_and_is_not_retried_in_vain() -> None:
    asked = {**ASKED, "max_tokens": LIMIT}  # never fits
    with setup() as served, served.openai() as client, served.anthropic() as claude:
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**asked)
        assert "limit of 2000 tokens per day" in caught.value.message
        assert (caught.value.type, caught.value.code) == ("tokens", "rate_limit_exceeded")
        with pytest.raises(anthropic.RateLimitError) as denied:
            claude.messages.create(**asked)
        error: Any = denied.value.body
        assert error["error"]["type"] == "rate_limit_error"
        assert "limit of 2000 tokens per day" in error["error"]["message"]
        assert denied.value.response.headers["x-should-retry"] == "false"
        assert not served.upstream.calls
        assert served.used == 0


def test_an_sdk_retries_a_short_denial_by_itself() -> None:
    text = POLICY.replace("20/minute", "2/s burst 1")
    with setup(text=text) as served, served.openai() as client:
        for _ in range(3):
            client.chat.completions.create(**ASKED)
        assert len(served.upstream.calls) == 3


def test_what_a_dependency_denies_gives_back_what_the_middleware_reserved() -> None:
    one = Depends(RateLimit("1/day", name="one"))
    with setup("fastapi", one) as served, served.openai(max_retries=0) as client:
        client.chat.completions.create(**ASKED)
        charged = served.used
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**ASKED)
        assert caught.value.code == "rate_limit_exceeded"
        assert served.used == charged == served.upstream.tokens
