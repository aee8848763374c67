"""A gateway before a server of language models, and what clients and operators see of its rules."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.decision_service import PLAIN
from tests.support.gateway_process import gateway
from tests.support.llm_upstream import CHAT, Behaviour, control, llm_upstream
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tests.support.gateway_process import Gateway
    from tests.support.llm_upstream import Call, LlmUpstream

RULES = """\
version: 1
prices:
  gpt-cheap*: {input: 1, cached: 0.5, output: 2}
  "*": {input: 10, output: 20}
rules:
  - id: tokens
    match: {endpoint: /v1/**}
    key_by: tenant
    limit: 10000/day strict
    cost: {llm: {count: tokens, hold: 5s}}
  - id: spend
    match: {endpoint: /v1/**, model: gpt-*}
    key_by: tenant
    limit: 10 usd/day strict
    cost: {llm: {count: spend, hold: 5s}}
  - {id: streams, match: {endpoint: /v1/**}, key_by: tenant, concurrency: {limit: 8, ttl: 5s}}
"""
MESSAGES = [{"role": "user", "content": "What is a token? " * 8}]
QUESTION = {"model": "gpt-cheap-1", "max_tokens": 100, "messages": MESSAGES}
STREAMED = {**QUESTION, "stream": True, "stream_options": {"include_usage": True}}


def estimate(call: Call) -> int:
    """What a *call* of 100 tokens holds."""
    return -(-len(call.body) // 4) + 100


class LlmGateway:
    """A gateway that runs, and the server behind it."""

    def __init__(self, gateway: Gateway, upstream: LlmUpstream) -> None:
        self.gateway, self.upstream = gateway, upstream
        self.url = gateway.url

    def post(
        self,
        asked: dict[str, Any] | bytes = QUESTION,
        path: str = CHAT,
        tenant: str = "t",
        how: Behaviour | None = None,
    ) -> httpx.Response:
        """The response to a call, read to its end."""
        return PLAIN.post(f"{self.url}{path}", **self.call(asked, tenant, how))

    def call(
        self, asked: dict[str, Any] | bytes, tenant: str = "t", how: Behaviour | None = None
    ) -> dict[str, Any]:
        """The arguments of a call for a client."""
        headers = {"x-tenant-id": tenant, **({} if how is None else control(how))}
        content = {"content": asked} if isinstance(asked, bytes) else {"json": asked}
        return {"headers": headers, **content}

    def used(self, tenant: str = "t") -> dict[str, int]:
        """What each rule counts for *tenant* now, by a peek."""
        return used_at(self.gateway.service_url, tenant)

    def wait_for(self, used: dict[str, int], tenant: str = "t") -> None:
        """Wait until the rules in *used* count that."""

        def is_so() -> bool:
            found = self.used(tenant)
            return {rule: found.get(rule) for rule in used} == used

        wait_until(is_so, f"{used} is used, not {self.used(tenant)}")

    def wait_for_service(self) -> None:
        """Wait until Envoy calls a service that was killed."""

        def is_called() -> bool:
            return "ratelimit" in self.post(tenant="waiting").headers

        wait_until(is_called, "the service is called again", every=0.2)


def used_at(service_url: str, tenant: str = "t") -> dict[str, int]:
    """What each rule counts for *tenant* now, by the service at *service_url*."""
    asked = {
        "method": "POST",
        "path": CHAT,
        "headers": {"x-tenant-id": tenant},
        "attributes": {"llm.model": "gpt-cheap-1"},
        "peek": True,
    }
    rules = PLAIN.post(f"{service_url}/v1/check", json=asked).json()["rules"]
    return {one["id"]: one["quota"] - one["remaining"] for one in rules}


@contextmanager
def llm_gateway(
    directory: Path,
    *flags: str,
    rules: str = RULES,
    how: Behaviour | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[LlmGateway]:
    """A gateway with *rules* before a server that responds as *how* says."""
    with (
        llm_upstream(how) as upstream,
        gateway(directory, *flags, rules=rules, upstream=upstream.url, env=env) as one,
    ):
        yield LlmGateway(one, upstream)
