"""The libraries, each used as its documentation says for many concurrent callers."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import coredis
import glide

from benchmarks.client_libraries.raw import RAW, place
from benchmarks.redis.bare import BARE_ASYNC, BARE_LONE
from benchmarks.redis.contestant import AsyncContestant, AsyncEntry, Quota, WrongAnswerError
from benchmarks.redis.script import SINGLE, arguments

if TYPE_CHECKING:
    from collections.abc import Iterator


class Coredis(AsyncEntry):
    """coredis: commands are awaited on a client that is a context manager."""

    def __init__(self, client: coredis.Redis[bytes], sha: bytes, quota: Quota) -> None:
        self._client = client
        self._sha = sha
        self._arguments = arguments(quota.amount, quota.seconds)

    @classmethod
    async def enter(cls, url: str, quota: Quota) -> AsyncEntry:
        client = coredis.Redis.from_url(url)
        await client.__aenter__()
        return cls(client, await client.script_load(SINGLE), quota)

    async def call(self, keys: Iterator[str], until: float) -> int:
        evalsha, sha, figures = self._client.evalsha, self._sha, self._arguments
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if cast("int", await evalsha(sha, [key], figures)) < 0:
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        return cast("int", await self._client.evalsha(self._sha, [key], self._arguments)) >= 0

    async def aclose(self) -> None:
        await self._client.__aexit__(None, None, None)


class Glide(AsyncEntry):
    """valkey-glide: `invoke_script`; arguments go in, and come back, as text and bytes."""

    def __init__(self, client: glide.GlideClient, quota: Quota) -> None:
        self._client = client
        self._script = glide.Script(SINGLE)  # type: ignore[no-untyped-call]
        self._arguments: list[Any] = [*map(str, arguments(quota.amount, quota.seconds))]

    @classmethod
    async def enter(cls, url: str, quota: Quota) -> AsyncEntry:
        address = glide.NodeAddress(*place(url))
        configuration = glide.GlideClientConfiguration(
            [address],
            request_timeout=5_000,
            inflight_requests_limit=2_000,
        )
        return cls(await glide.GlideClient.create(configuration), quota)

    async def call(self, keys: Iterator[str], until: float) -> int:
        invoke, script, figures = self._client.invoke_script, self._script, self._arguments
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if cast("int", await invoke(script, keys=[key], args=figures)) < 0:
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        reply = await self._client.invoke_script(self._script, keys=[key], args=self._arguments)
        return cast("int", reply) >= 0

    async def aclose(self) -> None:
        await self._client.close()


OTHERS = (
    AsyncContestant("coredis", "bare EVALSHA", "bare", Coredis.enter),
    AsyncContestant("valkey-glide", "invoke_script", "bare", Glide.enter),
    RAW,
)
FOR_LONE_CHECKS = (BARE_LONE, *OTHERS)
FOR_MANY_CALLERS = (BARE_ASYNC, *OTHERS)
