"""`headgate keys` on real servers, beside the limiters that made the counters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Concurrency, RateLimiter, TokenBucket
from headgate.cli import main
from headgate.stores import Hit
from headgate.stores.base import group_name
from headgate.stores.redis.naming import Names, slot_of
from tests.support.servers import ClusterSetup, RedisServer, SentinelSetup, User

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW = TokenBucket(100, 0.01)
"""Gives nothing back while a test runs."""
WORD = "sesame"
READING = ("scan", "get", "getrange", "zrange", "lrange", "pttl", "time", "info", "client", "ping")


@pytest.fixture(scope="module")
def running() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(running: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    running.cli("flushall")
    monkeypatch.setenv("HEADGATE_STORE", running.url)
    monkeypatch.delenv("HEADGATE_NAMESPACE", raising=False)
    return running


class RuleAnswer:
    """What the command said."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def counters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["counters"]
        return found

    @property
    def has_more(self) -> bool:
        return bool(json.loads(self.out)["more"])

    def figures(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(one[name] for name in names) for one in self.counters]


@pytest.fixture
def keys(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*argv: str) -> RuleAnswer:
        capsys.readouterr()
        return RuleAnswer(main(["keys", *argv]), *capsys.readouterr())

    return ask


STACK = (
    "100/hour; 50/hour sliding_window_log; 40/day fixed_window; "
    "30/hour sliding_window_counter subwindows 6; 3/week leaky_bucket"
)


class TestFigures:
    def test_every_algorithm_is_told_as_it_is(self, server: RedisServer, keys: Any) -> None:
        with RateLimiter(STACK, store=server.url, name="api", namespace="shop") as limiter:
            limiter.hit("user:42")
            limiter.hit("user:42", cost=2)
        told = keys("--json", "--show", "user:42")
        assert told.status == 0
        assert told.figures("counter", "kind", "limit", "quota", "in_use") == [
            ("name=api", "paced", "100/h", None, 3),
            ("name=api#1", "sliding_window_log", "50/h", 50, 3),
            ("name=api#2", "fixed_window", "40/d", 40, 3),
            ("name=api#3", "sliding_window_counter", "30/h subwindows 6", 30, 3),
            ("name=api#4", "paced", "3/w", None, 3),
        ]
        assert all(0 < one["as_new_in"] < one["ttl"] for one in told.counters)

    def test_named_and_unnamed_counters_and_other_namespaces_are_shown(
        self, server: RedisServer, keys: Any
    ) -> None:
        with RateLimiter(SLOW, store=server.url, name="api", namespace="shop") as limiter:
            limiter.hit_all([Hit("ada", "9/hour", 2, "export"), Hit("ada", "8/hour gcra")])
            limiter.hit("ada")
        with RateLimiter(SLOW, store=server.url, name="api") as limiter:
            limiter.hit("ada")
        told = keys("--json", "--show", "ada")
        assert told.figures("namespace", "counter", "in_use") == [
            ("headgate", "name=api", 1),
            ("shop", "limit=8/h gcra", 1),
            ("shop", "name=api", 1),
            ("shop", "name=export", 2),
        ]

    def test_reservations_and_slots_are_shown_while_they_are_open(
        self, server: RedisServer, keys: Any
    ) -> None:
        stack = [SLOW, Concurrency(3, 60)]
        with (
            RateLimiter(SLOW, store=server.url, name="api") as limiter,
            RateLimiter(stack, store=server.url, name="api", namespace="jobs") as jobs,
            limiter.reserve("ada", 8, ttl=60) as reservation,
            jobs.slot("ada"),
        ):
            told = keys("--json", "--show", "ada")
            assert told.figures("namespace", "kind", "in_use", "held") == [
                ("headgate", "paced", 0, 8),
                ("jobs", "paced", 1, 0),
                ("jobs", "concurrency", 1, 0),
            ]
            [open_] = told.counters[0]["reservations"]
            assert (open_["amount"], 50 < open_["ends_in"] <= 60) == (8, True)
            assert len(told.counters[2]["slots"]) == 1
            assert "8 held" in keys().out
            reservation.commit(5)
        assert keys("--json", "--show", "ada").figures("in_use", "held") == [(5, 0), (1, 0)]

    def test_debt_is_told_in_full(self, server: RedisServer, keys: Any) -> None:
        with RateLimiter("5/hour sliding_window_log", store=server.url, name="api") as limiter:
            limiter.charge("ada", 12)
        assert keys("--json").figures("in_use", "quota") == [(12, 5)]

    def test_a_long_key_is_told_by_its_digest(self, server: RedisServer, keys: Any) -> None:
        with RateLimiter(SLOW, store=server.url, name="api") as limiter:
            limiter.hit("x" * 300)
        [(digest, is_digest)] = keys("--json").figures("key", "is_digest")
        assert is_digest
        assert keys("--json", "--show", "x" * 300).figures("key") == [(digest,)]
        assert "(digest)" in keys("--show", digest).out


class TestListing:
    @pytest.fixture(autouse=True)
    def _filled(self, server: RedisServer) -> None:
        for namespace in ("shop", "shopping"):
            with RateLimiter(SLOW, store=server.url, name="api", namespace=namespace) as limiter:
                for n in range(150):
                    limiter.hit(f"user:{n}")
                limiter.hit("user*[x]")

    def test_stops_at_the_limit_and_says_so(self, keys: Any) -> None:
        told = keys()
        assert (told.status, told.out.count("\n")) == (0, 101)
        assert "more than 100" in told.err
        assert keys("--json", "--limit", "7").has_more
        assert not keys("--json", "--limit", "302").has_more
        assert len(keys("--json", "--limit", "400").counters) == 302

    def test_a_pattern_and_a_namespace_narrow_it(self, keys: Any) -> None:
        told = keys("--json", "--namespace", "shop", "user:14?")
        assert told.figures("namespace", "key") == [("shop", f"user:14{n}") for n in range(10)]
        assert keys("--json", "user[*]*").figures("key") == [("user*[x]",)] * 2
        assert len(keys("--json", "--show", "user*[x]").counters) == 2

    def test_nothing_found_is_status_1(self, keys: Any) -> None:
        told = keys("nobody:*", "--namespace", "shop")
        assert (told.status, told.out) == (1, "")
        assert told.err == "no counter of a key like 'nobody:*' in namespace 'shop'\n"
        assert keys("--show", "nobody").status == 1
        assert keys("--json", "--show", "nobody").counters == []

    def test_others_in_the_database_are_left_alone(self, server: RedisServer, keys: Any) -> None:
        for command in (
            ("set", "shop:text", "hello"),
            ("set", "shop:number", "1234567890123456789"),  # like one of ours, but lives for ever
            ("set", "shop:big", "1" * 100_000, "ex", "60"),
            ("set", "plain", "1"),
            ("hset", "shop:hash", "a", "b"),
            ("rpush", "shop:list", "a"),
            ("set", "shop~:string", "a", "ex", "60"),
        ):
            server.cli(*command)
        assert len(keys("--json", "--limit", "400").counters) == 302

    def test_only_reads_and_never_asks_for_all_keys_at_once(
        self, server: RedisServer, keys: Any
    ) -> None:
        server.cli("config", "resetstat")
        before = server.info("persistence")["rdb_changes_since_last_save"]
        keys("--limit", "400")
        used = {name.removeprefix("cmdstat_") for name in server.info("commandstats")}
        assert {name.partition("|")[0] for name in used} <= {"config", *READING}
        assert server.calls("scan") >= 1
        assert server.info("persistence")["rdb_changes_since_last_save"] == before


def test_a_user_who_may_only_read_can_look(keys: Any) -> None:
    rules = "~* +scan +get +getrange +zrange +lrange +pttl +time"
    with RedisServer(user=User("eve", WORD, rules)) as server:
        assert keys("--store", server.url).status == 1
        told = keys("--store", server.url.replace(WORD, "pepper"))
        assert (told.status, "pepper" in told.err, told.err.count("\n")) == (2, False, 1)


def test_a_server_that_is_gone_is_one_line(keys: Any) -> None:
    with RedisServer(password=WORD) as server:
        url = server.url
    told = keys("--store", url)
    assert (told.status, told.out, told.err.count("\n")) == (2, "", 1)
    assert server.address in told.err
    assert WORD not in told.err


def test_the_unix_socket_and_tls_are_ways_in(keys: Any) -> None:
    with RedisServer(unix=True, password=WORD) as server:
        with RateLimiter(SLOW, store=server.unix_url, name="api") as limiter:
            limiter.hit("ada")
        assert keys("--store", server.unix_url).status == 0
    with RedisServer(tls=True) as server:
        url = f"{server.url}&ssl_ca_certs={server.certificates.ca}"
        with RateLimiter(SLOW, store=url, name="api") as limiter:
            limiter.hit("ada")
        assert keys("--store", url).status == 0
        assert "TLS" in keys("--store", server.url).err


def test_head_may_leave_early(server: RedisServer) -> None:
    with RateLimiter(SLOW, store=server.url, name="api") as limiter:
        limiter.hit_many([f"user:{n}" for n in range(2_000)])
    line = f"{sys.executable} -m headgate.cli keys --limit 2000 | head -n 1"
    call = ["sh", "-c", line]
    done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.stdout.split()[0], done.stderr) == ("KEY", "")


def test_sentinels_name_the_server(keys: Any) -> None:
    with SentinelSetup(password=WORD) as setup:
        with RateLimiter(SLOW, store=setup.url, name="api") as limiter:
            limiter.hit("ada")
        assert keys("--json", "--store", setup.url).figures("key") == [("ada",)]
        told = keys("--store", setup.url.replace("/mymaster", "/other"))
        assert (told.status, "'other'" in told.err) == (2, True)


def test_all_primaries_of_a_cluster_are_asked_even_while_slots_move(keys: Any) -> None:
    with ClusterSetup() as cluster:
        with RateLimiter(
            f"{SLOW}; 50/hour sliding_window_log", store=cluster.url, name="api"
        ) as limiter:
            for n in range(40):
                limiter.hit(f"user:{n}")
        url = cluster.url
        told = keys("--json", "--store", url)
        assert len(told.counters) == 80
        assert {one["in_use"] for one in told.counters} == {1}
        shown = keys("--json", "--store", url, "--show", "user:7")
        assert shown.figures("counter") == [("name=api",), ("name=api#1",)]
        alone = keys("--store", cluster.nodes[0].url)
        assert (alone.status, "redis+cluster://" in alone.err) == (2, True)

        name = Names(has_tags=True).counter(group_name("headgate", "api"), "user:7")
        slot = slot_of(name)
        target = next(one for one in cluster.primaries() if one is not cluster.owner_of(slot))
        with cluster.migrating(slot, target) as migration:
            assert migration.move_keys() >= 2
            assert keys("--json", "--store", url, "--show", "user:7").counters
            assert len(keys("--json", "--store", url).counters) == 80
