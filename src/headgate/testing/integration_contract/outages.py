"""The contract of outages: no request is a 500 because the store is unavailable."""

from __future__ import annotations

import json

from headgate.limits import Concurrency
from headgate.testing.capabilities import needs
from headgate.testing.integration_contract.app import Route
from headgate.testing.integration_contract.subject import IntegrationUnderTest


class OutageContract(IntegrationUnderTest):
    """A store that is unavailable, and recovers."""

    def test_a_limit_that_fails_open_lets_requests_pass_without_figures(self) -> None:
        self.start(limits="3/hour", store=self.remote)
        self.remote.is_gone = True
        reply = self.ask()
        assert reply.status == 200
        assert "ratelimit-policy" in reply.headers
        assert "ratelimit" not in reply.headers
        assert "x-ratelimit-remaining" not in reply.headers

    def test_a_limit_that_fails_open_lets_no_more_pass_than_the_limit(self) -> None:
        self.start(limits="2/hour", store=self.remote)
        self.remote.is_gone = True
        assert self.statuses(3) == [200, 200, 429]

    def test_a_limit_that_fails_closed_is_a_503_with_retry_after(self) -> None:
        self.start(limits="3/hour", on_store_failure="fail_closed", store=self.remote)
        self.remote.is_gone = True
        reply = self.ask()
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert json.loads(reply.body)["error"] == "temporarily_unavailable"
        assert self.script.entered.count == 0

    def test_a_limit_that_falls_back_counts_in_the_process(self) -> None:
        self.start(limits="2/hour", on_store_failure="local", store=self.remote)
        self.remote.is_gone = True
        assert self.statuses(3) == [200, 200, 429]

    def test_a_local_slot_is_free_when_its_request_is_over(self) -> None:
        slot = Concurrency(1, ttl=600)
        self.start(limits=slot, on_store_failure="local", store=self.remote)
        self.remote.is_gone = True
        assert self.statuses(3) == [200, 200, 200]

    def test_the_store_counts_again_when_it_is_back(self) -> None:
        self.start(limits="2/hour", on_store_failure="fail_closed", store=self.remote, name="api")
        assert self.left() == {"api": 1}
        self.remote.is_gone = True
        assert self.ask().status == 503
        self.remote.is_gone = False
        assert self.left() == {"api": 0}

    def test_a_store_that_goes_while_a_request_lasts_does_not_break_it(self) -> None:
        slot = Concurrency(1, ttl=600)
        self.start(Route(behaviour="waits"), limits=slot, store=self.remote)
        waiting = self.open()
        self.script.entered.wait_for(1)
        self.remote.is_gone = True
        self.script.gate.open()
        reply = waiting.finish()
        assert (reply.status, reply.body) == (200, b"ok")

    @needs("has_route_limits")
    def test_a_route_that_fails_closed_is_a_503(self) -> None:
        own = {"limits": "3/hour", "on_store_failure": "fail_closed", "name": "route"}
        self.start(Route(path="/a", limit=own), Route(path="/b"), store=self.remote)
        self.remote.is_gone = True
        reply = self.ask("/a")
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert self.ask("/b").status == 200

    def test_a_store_that_waits_decides_as_one_in_memory(self) -> None:
        self.start(limits="2/hour", store=self.remote, name="api")
        assert [self.left(), self.left()] == [{"api": 1}, {"api": 0}]
        assert self.ask().status == 429
