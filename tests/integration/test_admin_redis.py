"""Single counters and previews on a real Redis."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.config.values import AdminToken
from headgate.control.audit import AuditLog
from headgate.control.editor import EditRequest, PolicyEditor
from headgate.control.edits import replace_policy
from headgate.control.live_counters import RedisCounters
from headgate.control.source import MemorySource
from headgate.control.watcher import PolicyWatcher
from headgate.engine.request import Request
from headgate.errors import StoreError
from headgate.policy.model import Policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.admin import AdminApp, AdminContext
from headgate.service.core import Core
from headgate.service.live import Live
from tests.support.servers import ClusterSetup, RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from headgate.control.live_counters import FoundCounters

SECRET = "s" * 20
RULES: list[dict[str, Any]] = [
    {"id": "user", "key_by": "user_id", "limit": "10/h; 100/d fixed_window"},
    {"id": "user-2", "key_by": "user_id", "limit": "1000/h"},
    {
        "id": "slots",
        "key_by": "user_id",
        "limits": [{"algorithm": "concurrency", "limit": 20, "ttl": 60}],
    },
]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as cluster:
        yield cluster


class Trial:
    """An admin API on the store *url*, with counters under *namespace*."""

    def __init__(self, url: str, namespace: str) -> None:
        self.engine = AsyncRuleEngine(Policy(), store=url, namespace=namespace)
        self.live = RedisCounters(url, namespace=namespace)
        storage = MemorySource()
        self.editor = PolicyEditor(storage)
        self.watcher = PolicyWatcher(storage, self.engine.replace)
        core = Core(rules=self.engine, clock=time.time_ns, secret=b"", namespace=namespace)
        token = AdminToken.of("ada", "write", SECRET.encode())
        context = AdminContext(
            core, self.editor, self.watcher, AuditLog(), self.live, Live(core, self.watcher)
        )
        app = AdminApp(context, [token])
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://headgate/admin/v1",
            headers={"authorization": f"Bearer {SECRET}"},
        )

    async def hit(self, user: str, times: int) -> list[bool]:
        request = Request(headers=(("x-user-id", user),))
        return [(await self.engine.check(request)).allowed for _ in range(times)]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


def tried(url: str, namespace: str, body: Callable[[Trial], Awaitable[None]]) -> None:
    async def main() -> None:
        trial = Trial(url, namespace)
        trial.editor.apply(
            replace_policy({"version": 1, "rules": RULES}), EditRequest(author="ada")
        )
        trial.watcher.start()
        try:
            await body(trial)
        finally:
            await trial.client.aclose()
            trial.watcher.stop()
            await trial.engine.aclose()

    asyncio.run(main())


def figures(look: FoundCounters) -> set[tuple[str, str, int, int]]:
    return {(one.rule, one.key, one.place, one.used) for one in look.counters}


async def counters_are_found(trial: Trial) -> None:
    await trial.hit("ann", 3)
    await trial.hit("bob", 1)
    look = await trial.live.find(["user"], most=100)
    assert figures(look) == {
        ("user", "user_id=ann", 0, 3),
        ("user", "user_id=ann", 1, 3),
        ("user", "user_id=bob", 0, 1),
        ("user", "user_id=bob", 1, 1),
    }
    assert not look.has_more
    look = await trial.live.find(["user", "slots"], most=100, pattern="*ann")
    slots = ("slots", "user_id=ann", 0, 3)
    assert figures(look) == {("user", "user_id=ann", 0, 3), ("user", "user_id=ann", 1, 3), slots}
    look = await trial.live.find(["user"], most=3)
    assert (len(look.counters), look.has_more) == (3, True)


def test_the_counters_of_a_rule_are_found_and_no_others(server: RedisServer) -> None:
    tried(server.url, "found", counters_are_found)


def test_in_a_cluster_too(cluster: ClusterSetup) -> None:
    tried(cluster.url, "found", counters_are_found)


def test_a_preview_tells_whom_a_tighter_limit_would_refuse(server: RedisServer) -> None:
    async def body(trial: Trial) -> None:
        await trial.hit("ann", 7)
        await trial.hit("bob", 2)
        tighter = {"key_by": "user_id", "limit": "5/h; 100/d fixed_window"}
        content = await trial.ask("POST", "/rules:preview", {"rules": {"user": tighter}})
        told = {
            (one["key"], one["limit"]): one["refused_after"]
            for one in content["counters"]["affected"]
        }
        assert told == {
            ("user_id=ann", 0): True,
            ("user_id=bob", 0): False,
            ("user_id=ann", 1): False,
            ("user_id=bob", 1): False,
        }
        assert content["counters"]["affected"][0]["key"] == "user_id=ann"
        await trial.ask("PUT", "/rules/user", tighter)
        assert await trial.hit("ann", 1) == [False]
        assert await trial.hit("bob", 1) == [True]

    tried(server.url, "preview", body)


def test_a_counter_is_looked_at_reset_and_blocked(server: RedisServer) -> None:
    async def body(trial: Trial) -> None:
        named = {"rule": "user", "identity": {"user_id": "ann"}}
        assert (await trial.hit("ann", 11))[-1] is False
        content = await trial.ask("POST", "/keys:lookup", named)
        assert [one["used"] for one in content["limits"]] == [10, 10]
        await trial.ask("POST", "/keys:reset", named)
        content = await trial.ask("POST", "/keys:lookup", named)
        assert [one["used"] for one in content["limits"]] == [0, 0]
        assert await trial.hit("ann", 1) == [True]
        await trial.ask("POST", "/keys:block", {**named, "ttl": 600})
        assert await trial.hit("ann", 1) == [False]
        listed = await trial.ask("GET", "/keys?rule=user&pattern=*ann")
        assert {one["used"] for one in listed["counters"]} == {1}

    tried(server.url, "keys", body)


def test_slots_are_reset_too(server: RedisServer) -> None:
    async def body(trial: Trial) -> None:
        assert (await trial.hit("ann", 5))[-1] is True
        assert figures(await trial.live.find(["slots"], most=9)) == {("slots", "user_id=ann", 0, 5)}
        await trial.ask("POST", "/keys:reset", {"rule": "slots", "key": "user_id=ann"})
        assert figures(await trial.live.find(["slots"], most=9)) == set()

    tried(server.url, "slots", body)


def test_a_store_that_is_gone_is_an_error_here_and_a_word_in_a_preview() -> None:
    async def body(trial: Trial) -> None:
        with pytest.raises(StoreError):
            await trial.live.find(["user"], most=1)
        content = await trial.ask(
            "POST", "/rules:preview", {"rules": {"user": {"key_by": "ip", "limit": "1/s"}}}
        )
        assert content["counters"]["available"] is False
        answer = await trial.client.post("/keys:lookup", json={"rule": "user", "key": "user_id=a"})
        assert answer.status_code == 503

    with RedisServer() as gone:
        url = gone.url
    tried(url, "gone", body)
