"""A server whose replies are lost, late or cut off sees each check once, and no storm after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.limiters import KINDS, bucket, limiting
from tests.support.servers import RedisServer, SilentProxy, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.decision import FailurePolicy
    from tests.support.limiters import Limiting

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers"),
    pytest.mark.parametrize("kind", KINDS),
]

SHORT = 1.0
FEW = 20
"""More connections than this are a storm, whatever has happened to those before them."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[SilentProxy]:
    with SilentProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def one(kind: str, proxy: SilentProxy) -> Iterator[Limiting]:
    """A limiter behind the proxy that has been used once."""
    with limiting(kind, proxy.url, timeout=SHORT) as one:
        assert one.reason() is None
        proxy.forget()
        yield one


@pytest.fixture
def witness(kind: str, one: Limiting, server: RedisServer) -> Iterator[Limiting]:
    """A limiter on the same counters that does not go through the proxy."""
    with limiting(kind, server.url, namespace=one.namespace) as witness:
        yield witness


def scripts_sent(proxy: SilentProxy) -> int:
    """How many calls of scripts clients have sent."""
    return sum(command[0].upper() in (b"EVALSHA", b"EVAL") for command in proxy.commands())


class TestLostReplies:
    def test_a_check_whose_reply_is_swallowed_is_sent_once_and_charged_once(
        self, proxy: SilentProxy, one: Limiting, witness: Limiting
    ) -> None:
        proxy.swallow_replies()
        assert one.reason() == "timeout"
        assert scripts_sent(proxy) == 1
        assert witness.used() == 2
        proxy.heal()
        one.wait_until_decided()
        assert witness.used() == 2

    def test_what_a_swallowed_reply_may_have_charged_is_not_reported_afterwards(
        self, kind: str, proxy: SilentProxy, witness: Limiting
    ) -> None:
        space = witness.namespace
        with limiting(
            kind, proxy.url, timeout=SHORT, policy="fail_open", namespace=space
        ) as failing:
            assert failing.hit().source == "store"
            proxy.swallow_replies()
            assert failing.hit().source == "fail_open"
            assert witness.used() == 3
            proxy.heal()
            failing.wait_until_decided()
            wait_until(failing.has_reported, "there is nothing to report any more")
            assert witness.used() == 3

    @pytest.mark.parametrize("policy", ["fail_open", "fail_closed"])
    def test_the_decision_is_the_policys(
        self, kind: str, policy: FailurePolicy, proxy: SilentProxy
    ) -> None:
        with limiting(kind, proxy.url, timeout=SHORT, policy=policy) as one:
            assert one.hit().source == "store"
            proxy.swallow_replies()
            decision = one.hit()
            assert (decision.source, decision.allowed) == (policy, policy == "fail_open")

    def test_many_checks_whose_replies_are_swallowed_are_charged_at_most_once_each(
        self, proxy: SilentProxy, one: Limiting, witness: Limiting
    ) -> None:
        proxy.swallow_replies()
        decisions = one.hit_together([("key", 1)] * 60)
        assert {decision.source for decision in decisions} == {"fail_closed"}
        proxy.heal()
        one.wait_until_decided()
        assert 1 <= witness.used() <= 61

    def test_a_swallowed_request_is_a_timeout_and_is_not_sent_again(
        self, proxy: SilentProxy, one: Limiting, witness: Limiting
    ) -> None:
        proxy.swallow_requests()
        assert one.reason() == "timeout"
        assert scripts_sent(proxy) == 1
        proxy.heal()
        one.wait_until_decided()
        assert witness.used() == 1

    def test_a_late_reply_is_not_taken_for_the_answer_to_another_question(
        self, proxy: SilentProxy, one: Limiting, witness: Limiting
    ) -> None:
        proxy.delay_replies(ms=SHORT * 2_000)
        assert one.reason() == "timeout"
        proxy.heal()
        one.wait_until_decided()
        for number in range(1, 6):
            assert one.hit("other", cost=7).remaining == 1_000 - 7 * number
        assert witness.used() == 2

    def test_a_connection_cut_after_the_question_is_unreachable_and_charged_once(
        self, kind: str, proxy: SilentProxy, one: Limiting, witness: Limiting
    ) -> None:
        proxy.delay_replies(ms=5_000)
        with one.hammering(callers=1) as seen:
            wait_until(lambda: scripts_sent(proxy) == 1, "the check is on its way")
            wait_until(lambda: witness.used() == 2, "the check is charged")
            proxy.cut_connections()
            wait_until(lambda: bool(seen.decisions), "the caller has its decision")
            seen.is_over.set()
        assert seen.decisions[0].source == "fail_closed"
        assert witness.used() <= 1 + len(seen.decisions)

    def test_a_connection_cut_while_idle_fails_one_check_at_most_and_charges_none_twice(
        self, proxy: SilentProxy, one: Limiting, witness: Limiting
    ) -> None:
        for _ in range(5):
            used = witness.used()
            proxy.cut_connections()
            wait_until(lambda: proxy.open_now == 0, "no connection is open")
            sources = [one.hit().source for _ in range(2)]
            assert sources[1] == "store"
            assert witness.used() == used + sources.count("store")


class TestStorms:
    """20 threads, or 200 tasks of one loop, through an outage and after it."""

    @pytest.fixture
    def callers(self, kind: str) -> int:
        return 20 if kind == "sync" else 200

    def test_refused_connections_bring_no_storm(
        self, callers: int, proxy: SilentProxy, one: Limiting
    ) -> None:
        with one.hammering(callers=callers, pause=0.01) as seen:
            seen.wait_for_more("store")
            proxy.refuse_connections()
            proxy.cut_connections()
            seen.wait_for_more("fail_closed", count=500)
            proxy.heal()
            seen.wait_for_more("store", count=500)
        assert proxy.opened <= FEW

    def test_a_server_that_falls_silent_brings_no_storm(
        self, callers: int, proxy: SilentProxy, one: Limiting
    ) -> None:
        with one.hammering(callers=callers, pause=0.01) as seen:
            seen.wait_for_more("store")
            proxy.swallow_replies()
            seen.wait_for_more("fail_closed", count=3 * callers)
            proxy.heal()
            seen.wait_for_more("store", count=500)
        assert proxy.opened <= FEW

    def test_connections_cut_again_and_again_bring_no_storm(
        self, callers: int, proxy: SilentProxy, one: Limiting
    ) -> None:
        with one.hammering(callers=callers, pause=0.01) as seen:
            for _ in range(5):
                proxy.cut_connections()
                seen.wait_for_more("store", count=100)
        assert proxy.opened <= FEW

    def test_a_crashed_server_brings_no_storm_and_each_check_is_charged_at_most_once(
        self, kind: str, callers: int
    ) -> None:
        lasting = RedisServer(config=["appendonly yes", "appendfsync always"])
        with lasting as server, limiting(kind, server.url, bucket(100_000), timeout=SHORT) as one:
            with one.hammering(callers=callers, pause=0.01) as seen:
                seen.wait_for_more("store")
                server.kill()
                seen.wait_for_more("fail_closed", count=500)
                server.restart()
                seen.wait_for_more("store", count=500)
                assert int(server.info("stats")["total_connections_received"]) <= FEW
            one.wait_until_decided()
            failed = len(seen.decisions) - seen.admitted
            assert seen.admitted <= one.used() <= seen.admitted + failed
