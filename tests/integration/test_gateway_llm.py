"""`headgate up` before a server of language models: what calls are charged, however they end.

The rules are those of `tests.support.llm_gateway`: tokens and dollars a day, and eight calls at the
same time. Each test has a tenant of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import httpx
import openai
import pytest

from tests.support.decision_service import PLAIN
from tests.support.gateway_process import gateway
from tests.support.llm_gateway import (
    MESSAGES,
    QUESTION,
    RULES,
    STREAMED,
    LlmGateway,
    estimate,
    llm_gateway,
    used_at,
)
from tests.support.llm_upstream import CHAT, Behaviour, llm_upstream
from tests.support.llm_upstream import MESSAGES as ANTHROPIC
from tests.support.servers import RedisServer, until, wait_until
from tests.support.servers.upstream import QuietHandler, upstream_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.gateway_process import Gateway
    from tests.support.llm_upstream import Call, LlmUpstream

SLOW = Behaviour(output_tokens=100, delay=0.05)
"""A stream that lasts until it is broken off."""

PAUSING = Behaviour(output_tokens=30, hold_after=1)
"""A stream that waits for the test."""

ROOT = Path(__file__).parents[2]
LONG_HELD = RULES.replace("hold: 5s", "hold: 1h")
LARGEST = 20_000
"""The bytes of the largest body."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmGateway]:
    flags = ("--client-max-model-body", str(LARGEST))
    with llm_gateway(tmp_path_factory.mktemp("gateway"), *flags) as one:
        yield one


def calls_of(one: LlmGateway, tenant: str) -> list[Call]:
    return [call for call in one.upstream.calls if call.headers.get("x-tenant-id") == tenant]


class TestUsage:
    @pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
    @pytest.mark.parametrize("asked", [QUESTION, STREAMED])
    def test_a_call_is_charged_what_its_response_says(
        self, running: LlmGateway, path: str, asked: dict[str, Any]
    ) -> None:
        tenant = f"usage {path} {'stream' in asked}"
        how = Behaviour(output_tokens=7, cached_tokens=20)
        reply = running.post(asked, path, tenant, how)
        (call,) = calls_of(running, tenant)
        assert (reply.status_code, call.output_tokens) == (200, 7)
        tokens = call.prompt_tokens + 7
        spent = -(-((call.prompt_tokens - 20) * 2 + 20 + 7 * 4) // 2)
        running.wait_for({"tokens": tokens, "spend": spent, "streams": 0}, tenant)
        left = reply.headers["ratelimit"]
        assert f'"tokens";r={10_000 - estimate(call)};' in left
        assert '"streams";r=7' in left

    @pytest.mark.parametrize("is_stream", [False, True])
    def test_the_responses_of_openai_are_read_too(self, tmp_path: Path, *, is_stream: bool) -> None:
        asked = {"model": "m", "max_output_tokens": 100, "input": "?", "stream": is_stream}
        with (
            upstream_of(_Responses) as port,
            gateway(tmp_path, rules=RULES, upstream=f"http://127.0.0.1:{port}") as one,
        ):
            call: dict[str, Any] = {"json": asked, "headers": {"x-tenant-id": "t"}}
            reply = PLAIN.post(f"{one.url}/v1/responses", **call)
            size = len(reply.request.content)
            left = 10_000 - 100 - -(-size // 4)
            assert reply.headers["x-ratelimit-remaining-tokens"] == str(left)
            wait_until(lambda: used_at(one.service_url)["tokens"] == 43, "the usage is charged")

    @pytest.mark.parametrize(
        "how",
        [
            Behaviour(piece=7),
            Behaviour(newline="crlf"),
            Behaviour(usage="each"),
            Behaviour(padding=20_000),
        ],
        ids=["pieces", "crlf", "usage in each event", "long events"],
    )
    def test_the_form_of_a_stream_changes_nothing(
        self, running: LlmGateway, how: Behaviour, request: pytest.FixtureRequest
    ) -> None:
        tenant = request.node.name
        reply = running.post(STREAMED, tenant=tenant, how=how)
        (call,) = calls_of(running, tenant)
        running.wait_for({"tokens": call.tokens, "streams": 0}, tenant)
        direct = httpx.post(running.upstream.url + CHAT, **running.call(STREAMED, "direct", how))
        assert reply.content == direct.content, "it passes byte for byte"

    def test_a_stream_arrives_while_it_is_written(self, running: LlmGateway) -> None:
        call = running.call(STREAMED, "early", PAUSING)
        with httpx.stream("POST", running.url + CHAT, **call) as reply:
            lines = reply.iter_lines()
            assert next(lines).startswith("data: {")
            assert running.used("early")["streams"] == 1
            (arrived,) = calls_of(running, "early")
            assert not arrived.is_complete
            running.upstream.gate.set()
            assert list(lines)[-2] == "data: [DONE]"
            running.upstream.gate.clear()
        running.wait_for({"tokens": arrived.tokens, "streams": 0}, "early")

    def test_several_completions_are_reserved(self, running: LlmGateway) -> None:
        reply = running.post({**QUESTION, "n": 3}, tenant="several")
        (call,) = calls_of(running, "several")
        assert f'"tokens";r={10_000 - estimate(call) - 200};' in reply.headers["ratelimit"]

    def test_nobody_else_sees_the_reservation(self, running: LlmGateway) -> None:
        reply = running.post(tenant="secret")
        (call,) = calls_of(running, "secret")
        assert not [name for name in (*reply.headers, *call.headers) if "reservation" in name]
        assert "accept-encoding" not in call.headers

    def test_requests_that_are_no_calls_are_not_reserved(self, running: LlmGateway) -> None:
        reply = httpx.get(f"{running.url}/v1/models", headers={"x-tenant-id": "reader"})
        assert reply.status_code == 404
        assert f'"tokens";r={10_000 - 1};' in reply.headers["ratelimit"]
        running.wait_for({"tokens": 1, "streams": 0}, "reader")


class TestOutcomes:
    """Each way in which a call may end."""

    def test_a_client_that_hangs_up_is_charged_the_estimate(self, running: LlmGateway) -> None:
        call = running.call(STREAMED, "gone", SLOW)
        with httpx.stream("POST", running.url + CHAT, **call) as reply:
            lines = reply.iter_lines()
            next(lines)
            assert running.used("gone")["streams"] == 1
        (arrived,) = calls_of(running, "gone")
        running.wait_for({"tokens": estimate(arrived), "streams": 0}, "gone")

    @pytest.mark.parametrize("fail", ["reset", "cut"])
    def test_so_is_a_call_whose_upstream_dies_in_the_middle(
        self, running: LlmGateway, fail: Any
    ) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            running.post(STREAMED, tenant=fail, how=Behaviour(fail=fail))
        (arrived,) = calls_of(running, fail)
        running.wait_for({"tokens": estimate(arrived), "streams": 0}, fail)

    @pytest.mark.parametrize(
        ("asked", "how"),
        [
            (QUESTION, Behaviour(usage="never")),
            (STREAMED, Behaviour(usage="never")),
            ({**QUESTION, "stream": True}, Behaviour()),
            (QUESTION, Behaviour(compress=True)),
        ],
        ids=["plain", "stream", "not asked for", "compressed"],
    )
    def test_so_is_a_response_without_usage(
        self,
        running: LlmGateway,
        asked: dict[str, Any],
        how: Behaviour,
        request: pytest.FixtureRequest,
    ) -> None:
        tenant = request.node.name
        assert running.post(asked, tenant=tenant, how=how).status_code == 200
        (arrived,) = calls_of(running, tenant)
        running.wait_for({"tokens": estimate(arrived), "streams": 0}, tenant)

    def test_an_error_costs_nothing(self, running: LlmGateway) -> None:
        reply = running.post(tenant="error", how=Behaviour(fail="status"))
        (arrived,) = calls_of(running, "error")
        assert reply.status_code == 529
        assert f'"tokens";r={10_000 - estimate(arrived)};' in reply.headers["ratelimit"]
        running.wait_for({"tokens": 0, "spend": 0, "streams": 0}, "error")

    @pytest.mark.parametrize("body", [b"{", b"[1]", b'{"max_tokens": NaN}', b"\xff", b"\x1f\x8b"])
    def test_a_malformed_body_reserves_the_most_and_is_passed_on(
        self, running: LlmGateway, body: bytes
    ) -> None:
        tenant = f"malformed {body.hex()}"
        reply = running.post(body, tenant=tenant)
        (arrived,) = calls_of(running, tenant)
        assert arrived.body == body
        held = -(-len(body) // 4) + 4096
        assert f'"tokens";r={10_000 - held};' in reply.headers["ratelimit"]
        assert '"spend"' in reply.headers["ratelimit"], "its model may be any"
        if reply.status_code == 400:
            running.wait_for({"tokens": 0, "streams": 0}, tenant)

    @pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
    def test_a_body_that_is_too_large_is_413_and_reserves_nothing(
        self, running: LlmGateway, path: str
    ) -> None:
        largest = running.post(b"x" * LARGEST, path, "large")
        assert (largest.status_code, len(calls_of(running, "large"))) == (400, 1)
        reply = running.post(b"x" * (2 * LARGEST), path, "large" + path)
        assert reply.status_code == 413
        assert reply.json()["error"]["message"] == "The request is too large."
        assert reply.json().get("type") == ("error" if path == ANTHROPIC else None)
        assert calls_of(running, "large" + path) == []
        running.wait_for({"tokens": 0, "spend": 0, "streams": 0}, "large" + path)
        running.upstream.calls.clear()

    def test_a_call_that_is_denied_holds_nothing(self, running: LlmGateway) -> None:
        reply = running.post({**QUESTION, "max_tokens": 10_001}, tenant="denied")
        assert reply.status_code == 429
        assert calls_of(running, "denied") == []
        running.wait_for({"tokens": 0, "spend": 0, "streams": 0}, "denied")


class TestSlots:
    def test_as_many_calls_as_there_are_slots_and_the_next_when_one_ends(
        self, running: LlmGateway
    ) -> None:
        url, call = running.url + CHAT, running.call(STREAMED, "streams", SLOW)
        with ExitStack() as stack:
            first = httpx.stream("POST", url, **call)
            assert first.__enter__().status_code == 200
            others = [stack.enter_context(httpx.stream("POST", url, **call)) for _ in range(8)]
            assert [one.status_code for one in others] == [200] * 7 + [429]
            first.__exit__(None, None, None)
            running.wait_for({"streams": 7}, "streams")
            assert stack.enter_context(httpx.stream("POST", url, **call)).status_code == 200


class TestClients:
    """The packages that people use."""

    def test_openai(self, running: LlmGateway) -> None:
        headers = {"x-tenant-id": "openai"}
        base = f"{running.url}/v1"
        asked: Any = {"model": "gpt-cheap-1", "max_tokens": 100, "messages": MESSAGES}
        with openai.OpenAI(base_url=base, api_key="any", default_headers=headers) as client:
            plain = client.chat.completions.create(**asked)
            assert plain.usage is not None
            total = plain.usage.total_tokens
            running.wait_for({"tokens": total, "streams": 0}, "openai")
            options = {"include_usage": True}
            create: Any = client.chat.completions.create
            chunks = list(create(**asked, stream=True, stream_options=options))
            total += chunks[-1].usage.total_tokens
            running.wait_for({"tokens": total, "streams": 0}, "openai")
            with pytest.raises(openai.RateLimitError) as denied:
                client.chat.completions.create(**{**asked, "max_tokens": 10_000})
        error = denied.value
        assert (error.code, error.type) == ("rate_limit_exceeded", "tokens")
        assert error.response.headers["x-ratelimit-remaining-tokens"] == str(10_000 - total)

    def test_anthropic(self, running: LlmGateway) -> None:
        headers = {"x-tenant-id": "anthropic"}
        url, asked = running.url, {"model": "m", "max_tokens": 100, "messages": MESSAGES}
        with anthropic.Anthropic(base_url=url, api_key="any", default_headers=headers) as client:
            create: Any = client.messages.create
            plain = create(**asked)
            total = plain.usage.input_tokens + plain.usage.output_tokens
            running.wait_for({"tokens": total, "streams": 0}, "anthropic")
            stream: Any = client.messages.stream
            with stream(**asked) as events:
                usage = events.get_final_message().usage
            total += usage.input_tokens + usage.output_tokens
            running.wait_for({"tokens": total, "streams": 0}, "anthropic")
            with pytest.raises(anthropic.RateLimitError) as denied:
                create(**{**asked, "max_tokens": 10_000})
        error = denied.value
        assert error.response.json()["error"]["type"] == "rate_limit_error"
        left = error.response.headers["anthropic-ratelimit-tokens-remaining"]
        assert left == str(10_000 - total)


class TestTrouble:
    """Processes and servers that die between the start and the end of a call."""

    def test_the_estimate_is_held_and_slots_expire_if_envoy_is_killed(self, tmp_path: Path) -> None:
        with llm_gateway(tmp_path, rules=LONG_HELD) as one:
            call = one.call(STREAMED, how=PAUSING)
            with httpx.stream("POST", one.url + CHAT, **call) as reply:
                lines = reply.iter_lines()
                next(lines)
                os.kill(one.gateway.envoy_pid, signal.SIGKILL)
                with pytest.raises(httpx.RemoteProtocolError):
                    list(lines)
            one.upstream.gate.set()
            (arrived,) = one.upstream.calls
            one.wait_for({"streams": 0})
            assert one.used()["tokens"] == estimate(arrived)
            wait_until(one.gateway.is_serving, "the gateway serves again")
            assert one.post().status_code == 200

    def test_another_worker_settles_if_the_first_is_killed(self, tmp_path: Path) -> None:
        with (
            RedisServer() as redis,
            llm_gateway(tmp_path, "--store", redis.url, rules=LONG_HELD) as one,
        ):
            call = one.call(STREAMED, how=PAUSING)
            with httpx.stream("POST", one.url + CHAT, **call) as reply:
                os.kill(one.gateway.worker_pid, signal.SIGKILL)
                one.wait_for_service()
                arrived = one.upstream.calls[0]
                assert one.used()["tokens"] == estimate(arrived)
                one.upstream.gate.set()
                reply.read()
            one.wait_for({"tokens": arrived.tokens, "streams": 0})

    def test_a_call_that_the_service_did_not_see_is_charged_its_usage(self, tmp_path: Path) -> None:
        """Or denied, in the form of the provider, if a rule fails closed.

        The service may decide the call after Envoy has given up on it: that is charged too.
        """
        closed = RULES + "  - {id: closed, match: {endpoint: /v1/messages}, key_by: tenant,"
        closed += " limit: 100/day, on_store_failure: fail_closed}\n"
        with llm_gateway(tmp_path, rules=closed) as one:
            call = one.call(STREAMED, how=PAUSING)
            os.kill(one.gateway.worker_pid, signal.SIGKILL)
            denied = one.post(path=ANTHROPIC, tenant="denied")
            assert (denied.status_code, denied.json()["type"]) == (503, "error")
            assert denied.json()["error"]["type"] == "overloaded_error"
            with httpx.stream("POST", one.url + CHAT, **call) as reply:
                assert reply.status_code == 200
                assert "ratelimit" not in reply.headers
                one.wait_for_service()
                one.upstream.gate.set()
                reply.read()
            arrived = one.upstream.calls[0]
            charged = arrived.tokens, arrived.tokens + estimate(arrived)
            wait_until(lambda: one.used()["tokens"] in charged, f"one of {charged} is charged")
            one.wait_for({"streams": 0})

    def test_a_call_without_redis_is_charged_when_redis_is_back(self, tmp_path: Path) -> None:
        with RedisServer() as redis, llm_gateway(tmp_path, "--store", redis.url) as one:
            assert one.post(tenant="first").status_code == 200
            redis.kill()
            call = one.call(STREAMED, how=PAUSING)
            with httpx.stream("POST", one.url + CHAT, **call) as reply:
                assert reply.status_code == 200
                redis.start()
                one.upstream.gate.set()
                reply.read()
            (_, arrived) = one.upstream.calls
            one.wait_for({"tokens": arrived.tokens, "streams": 0})

    def test_a_call_ends_as_ever_if_redis_has_gone_meanwhile(self, tmp_path: Path) -> None:
        with RedisServer() as redis, llm_gateway(tmp_path, "--store", redis.url) as one:
            call = one.call(STREAMED, how=PAUSING)
            with httpx.stream("POST", one.url + CHAT, **call) as reply:
                lines = reply.iter_lines()
                next(lines)
                redis.kill()
                one.upstream.gate.set()
                assert list(lines)[-2] == "data: [DONE]"
            assert one.post(tenant="next").status_code == 200


class _Responses(QuietHandler):
    """OpenAI's responses, plain and streamed, with a usage of 43 tokens."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"input_tokens": 31, "output_tokens": 12, "total_tokens": 43}
        response = {"id": "r", "object": "response", "model": "m", "usage": usage}
        text = json.dumps(response)
        if asked["stream"]:
            data = json.dumps({"type": "response.completed", "response": response})
            text = f"event: response.completed\ndata: {data}\n\n"
        self.send_response(200)
        kind = "text/event-stream" if asked["stream"] else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def test_the_policy_of_the_docs_limits_requests_tokens_dollars_and_streams(tmp_path: Path) -> None:
    rules = (ROOT / "examples/policies/llm.yaml").read_text(encoding="utf-8")
    with llm_gateway(tmp_path, rules=rules) as one:
        assert one.post().status_code == 200
        (call,) = one.upstream.calls
        spent = call.prompt_tokens * 15 + call.output_tokens * 75
        wait_until(lambda: one.used()["streams"] == 0, "the call is over")
        assert one.used()["spend"] <= spent
        denied = one.post({**QUESTION, "model": "gpt-4o", "max_tokens": 100_000})
        assert denied.json()["error"]["type"] == "tokens"
        denied = one.post({**QUESTION, "model": "o9", "max_tokens": 700_000})
        assert denied.json()["error"]["code"] == "insufficient_quota"
        assert len(one.upstream.calls) == 1


def test_concurrent_calls_at_two_gateways_use_no_more_than_the_budget(tmp_path: Path) -> None:
    """All calls come before the first has ended: as many pass as the budget has room for.

    No call uses more than it reserves, so that the settled total stays within the budget. Killing
    Envoy and the service in between gives no more room.
    """
    with _two_gateways(tmp_path) as (gateways, upstream):
        statuses, later = asyncio.run(_posted(gateways, upstream))
        calls = [call for call in upstream.calls if call.path == CHAT]
        assert len(calls) == BUDGET
        assert sorted(statuses)[-(CALLS - BUDGET) :] == [429] * (CALLS - BUDGET)
        assert set(later) <= {429, 503}
        finished = [call for call in calls if call.is_complete]
        broken = [call for call in calls if not call.is_complete]
        assert sorted(statuses)[: -(CALLS - BUDGET)] == [0] * len(broken) + [200] * len(finished)
        assert finished
        assert broken
        held = sum(map(estimate, broken)) + sum(call.tokens for call in finished)
        assert upstream.tokens < held <= LIMIT
        url = gateways[1].service_url
        wait_until(lambda: used_at(url) == {"tokens": held}, "calls that have ended are settled")


BUDGET = 10
CALLS = 50
LIMIT = BUDGET * (-(-len(httpx.Request("POST", "http://h", json=STREAMED).content) // 4) + 100)


@contextmanager
def _two_gateways(directory: Path) -> Iterator[tuple[list[Gateway], LlmUpstream]]:
    rules = f"""\
version: 1
rules:
  - id: tokens
    match: {{endpoint: /v1/**}}
    key_by: tenant
    limit: {LIMIT}/day strict
    cost: {{llm: {{count: tokens, hold: 1h}}}}
    on_store_failure: fail_closed
"""
    how = Behaviour(output_tokens=100, hold_after=1)
    with RedisServer() as redis, llm_upstream(how) as upstream, ExitStack() as stack:
        gateways = []
        for name in ("one", "two"):
            (directory / name).mkdir()
            flags = ("--store", redis.url)
            started = gateway(directory / name, *flags, rules=rules, upstream=upstream.url)
            gateways.append(stack.enter_context(started))
        yield gateways, upstream


async def _posted(gateways: list[Gateway], upstream: LlmUpstream) -> tuple[list[int], list[int]]:
    """The statuses of concurrent calls in turn to each of *gateways*, and of as many more, after
    the Envoy of the first and the service of the second were killed."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        urls = [gateways[n % 2].url + CHAT for n in range(CALLS)]
        tasks = [asyncio.create_task(_status(client, url)) for url in urls[:2]]
        await until(lambda: len(upstream.calls) == len(tasks))  # one at each
        tasks += [asyncio.create_task(_status(client, url)) for url in urls[2:]]
        await until(lambda: sum(task.done() for task in tasks) == CALLS - BUDGET)
        os.kill(gateways[0].envoy_pid, signal.SIGKILL)
        os.kill(gateways[1].worker_pid, signal.SIGKILL)
        await until(gateways[0].is_serving)
        later = await asyncio.gather(*(_status(client, url) for url in urls))
        while later[-1] != 429:  # the service is not called again yet
            later.append(await _status(client, urls[1]))
        upstream.gate.set()
        return await asyncio.gather(*tasks), later


async def _status(client: httpx.AsyncClient, url: str) -> int:
    """The status of a call; 0 if it breaks off."""
    try:
        return (await client.post(url, json=STREAMED, headers={"x-tenant-id": "t"})).status_code
    except httpx.TransportError:
        return 0
