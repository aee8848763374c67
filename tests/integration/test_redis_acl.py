"""The commands that docs/redis-layout.md names are all that a user needs."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate import Concurrency, Hit, RateLimiter
from headgate.limits import FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Check, GrantLease, MergeUsage, PublishValue
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from headgate.units import MICROSECOND, SECOND
from tests.support.decision_service import PLAIN, serving
from tests.support.servers import RedisServer, User, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYOUT = Path(__file__).parents[2] / "docs" / "redis-layout.md"
TOKEN = "t" * 20
LIMITS = (
    TokenBucket(10, 1),
    TokenBucket(10, 3),
    FixedWindow(10, 10),
    SlidingWindowLog(10, 10),
    SlidingWindowCounter(10, 10),
)


def _commands() -> list[str]:
    paragraph = re.search(r"^ACL: .*?\n\n", LAYOUT.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert paragraph
    return re.findall(r"\+[a-z|]+", paragraph[0])


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(user=User("app", "secret", " ".join(["~*", *_commands()]))) as running:
        yield running


def test_every_command_that_a_script_calls_is_named() -> None:
    scripts = files("headgate.stores.redis.lua").iterdir()
    texts = [script.read_text("utf-8") for script in scripts if script.name.endswith(".lua")]
    called = set(re.findall(r"call\('([A-Z]+)'", "\n".join(texts)))
    assert len(called) > 20
    assert {f"+{name.lower()}" for name in called} <= set(_commands())


def test_a_user_with_those_commands_can_do_everything(server: RedisServer) -> None:
    store = RedisStore(server.url)
    for n, limit in enumerate(LIMITS):
        limiter = RateLimiter(
            limit, store=store, name="api", namespace=f"acl{n}", on_store_failure="fail_closed"
        )
        for _ in range(12):
            assert limiter.hit("key").source == "store"
        assert limiter.charge("key", 15).source == "store"
        assert limiter.refund("key", 16).source == "store"
        limiter.reserve("key", 1).cancel()
        limiter.reset("key")
    with RateLimiter(Concurrency(2, 60), store=store, name="api").slot("key") as slot:
        assert slot.renew()
    limiter = RateLimiter(LIMITS, store=store, name="api", namespace="acl-all")
    assert limiter.hit_all([Hit("key", limit) for limit in LIMITS]).source == "store"
    _share(server)
    _lend(store)
    store.close()


def _share(server: RedisServer) -> None:
    clock = ManualClock(1_700_000_000)
    store = RedisStore(server.url, clock=clock)
    limit = Concurrency(1, 60, (("gold", 1),))
    limiter = RateLimiter(limit, store=store, name="shares", on_store_failure="fail_closed")
    slots = [limiter.slot("key", part) for part in (None, "gold", "gold", None)]
    assert slots[0].take()
    assert not slots[1].take()
    clock.advance(60)
    assert slots[2].take()
    assert slots[2].renew()
    clock.advance(60)
    assert slots[3].take()
    store.close()


def _lend(store: RedisStore) -> None:
    for n, limit in enumerate(LIMITS):
        check = Check(f"acl{n}", "key", limit)
        for most in (3, 0):
            store.run(GrantLease(check, "a", most, SECOND, unused=2))
            store.run(GrantLease(check, "b", most, MICROSECOND, used=1, is_charged=False))
        store.run(MergeUsage((check,), "eu", 1, SECOND))
        for ttl_ns in (MICROSECOND, SECOND):
            assert len(store.run(PublishValue(check.group, "key", f"{ttl_ns}", 1, 1, ttl_ns))) == 1


def test_a_service_whose_user_may_not_publish_values_works_without_other_nodes(
    tmp_path: Path,
) -> None:
    needed = [one for one in _commands() if not one.startswith(("+h", "+pttl"))]
    with (
        RedisServer(user=User("app", "secret", " ".join(["~*", *needed]))) as redis,
        serving(tmp_path, "--store", redis.url, env={"HEADGATE_ADMIN_TOKEN": TOKEN}) as service,
    ):
        wait_until(lambda: "cannot show other nodes" in service.log, "it is noticed")
        assert service.statuses(6) == [200] * 5 + [429]
        headers = {"authorization": f"Bearer {TOKEN}"}
        live = PLAIN.get(f"{service.url}/admin/v1/live", headers=headers).json()
        assert live["store"]["errors"] == {"denied": 1}, "it was tried once"
        assert (live["store"]["state"], live["nodes"]) == ("ok", [])
