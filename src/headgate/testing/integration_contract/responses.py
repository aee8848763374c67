"""The contract of responses: statuses, headers, and which requests count."""

from __future__ import annotations

import json

from headgate.responses.debug import debug_token
from headgate.testing.capabilities import needs
from headgate.testing.integration_contract.app import FORBIDDEN, Route
from headgate.testing.integration_contract.subject import START, IntegrationUnderTest, remaining
from headgate.units import SECOND

_SECRET = b"a secret"
_PREFLIGHT = {"origin": "https://page.test", "access_control_request_method": "GET"}
_FIELDS = ("ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining")
_IDEMPOTENT = {
    "version": 1,
    "rules": [{"id": "once", "key_by": "ip", "limit": "9/hour", "idempotency": {"retries": 1}}],
}


class ResponseContract(IntegrationUnderTest):
    """Statuses and headers."""

    def test_a_request_beyond_the_limit_is_denied_and_does_not_reach_the_app(self) -> None:
        self.start(limits="2/hour")
        assert self.statuses(4) == [200, 200, 429, 429]
        assert self.script.entered.count == 2

    def test_an_allowed_response_has_the_figures_of_the_limit(self) -> None:
        self.start(limits="2/hour", name="api")
        first, second = self.ask(), self.ask()
        assert [remaining(first), remaining(second)] == [{"api": 1}, {"api": 0}]
        assert first.body == b"ok"
        assert first.headers["ratelimit-policy"] == '"api";q=2;w=3600'
        assert first.headers["x-ratelimit-limit"] == "2"
        assert first.headers["x-ratelimit-remaining"] == "1"
        assert first.headers["x-ratelimit-reset"].isdigit()
        assert "retry-after" not in first.headers
        assert "retry-after" not in second.headers

    def test_a_denial_says_when_to_retry_in_header_and_body(self) -> None:
        self.start(limits="1/hour fixed_window")
        self.ask()
        denial = self.ask()
        body = json.loads(denial.body)
        assert denial.status == 429
        assert int(denial.headers["retry-after"]) >= 1
        assert body["error"] == "rate_limit_exceeded"
        assert body["retry_after"] == int(denial.headers["retry-after"])
        assert denial.headers["cache-control"] == "no-store"
        assert denial.headers["content-type"].startswith("application/json")
        assert denial.headers["content-length"] == str(len(denial.body))
        assert denial.headers["x-ratelimit-remaining"] == "0"

    def test_problem_details_are_sent_to_clients_that_accept_them(self) -> None:
        self.start(limits="1/hour", name="api")
        self.ask()
        denial = self.ask(accept="application/problem+json")
        assert denial.headers["content-type"].startswith("application/problem+json")
        body = json.loads(denial.body)
        assert (body["status"], body["violated-policies"]) == (429, ["api"])

    def test_head_counts_as_get_and_its_denial_has_headers_and_no_body(self) -> None:
        self.start(limits="2/hour")
        assert self.ask(method="HEAD").status == 200
        assert self.ask().status == 200
        denial = self.ask(method="HEAD")
        assert (denial.status, denial.body) == (429, b"")
        assert "retry-after" in denial.headers
        assert int(denial.headers["content-length"]) > 0

    @needs("sees_unrouted")
    def test_options_that_is_no_preflight_counts(self) -> None:
        self.start(limits="2/hour", name="api")
        self.ask(method="OPTIONS")
        assert self.left() == {"api": 0}

    @needs("sees_unrouted")
    def test_preflights_have_a_limit_of_their_own(self) -> None:
        self.start(limits="2/hour", name="api")
        assert remaining(self.ask(method="OPTIONS", **_PREFLIGHT)) == {}
        assert [self.left(), self.left()] == [{"api": 1}, {"api": 0}]
        assert self.ask().status == 429
        assert self.ask(method="OPTIONS", **_PREFLIGHT).status != 429
        assert self.ask(method="OPTIONS", **_PREFLIGHT).status == 429

    @needs("sees_unrouted")
    def test_preflights_count_with_other_requests_if_the_app_says_so(self) -> None:
        self.start(limits="1/hour", limits_preflights=True)
        self.ask(method="OPTIONS", **_PREFLIGHT)
        assert self.ask().status == 429

    def test_scripts_of_other_origins_may_read_the_headers_of_both_outcomes(self) -> None:
        self.start(limits="2/hour")
        assert "access-control-expose-headers" not in self.ask().headers
        for reply in (self.ask(origin="https://page.test"), self.ask(origin="https://page.test")):
            exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
            assert set(_FIELDS) <= set(exposed)
            assert ("retry-after" in exposed) == (reply.status == 429)

    def test_headers_that_the_app_exposes_stay_exposed(self) -> None:
        self.start(Route(behaviour="exposes"), limits="2/hour")
        exposed = self.ask(origin="https://page.test").headers["access-control-expose-headers"]
        assert exposed.startswith("X-Own, ")
        assert self.ask().headers["access-control-expose-headers"] == "X-Own"

    def test_an_error_of_the_framework_counts_and_has_headers(self) -> None:
        self.start(Route(behaviour="raises"), limits="2/hour", name="api")
        reply = self.ask()
        assert (reply.status, remaining(reply)) == (FORBIDDEN, {"api": 1})

    @needs("sees_unrouted")
    def test_a_path_that_does_not_exist_counts_and_has_headers(self) -> None:
        self.start(limits="2/hour", name="api")
        reply = self.ask("/nowhere")
        assert (reply.status, remaining(reply)) == (404, {"api": 1})

    def test_an_error_of_the_app_is_a_500_and_counts(self) -> None:
        self.start(Route(behaviour="fails"), limits="2/hour", name="api")
        assert self.statuses(3) == [500, 500, 429]

    @needs("answers_errors")
    def test_the_response_to_an_error_of_the_app_has_headers(self) -> None:
        self.start(Route(behaviour="fails"), limits="2/hour", name="api")
        reply = self.ask()
        assert (reply.status, remaining(reply)) == (500, {"api": 1})

    def test_an_idempotent_replay_is_free_and_is_marked(self) -> None:
        self.start(policy=_IDEMPOTENT)
        first, again, third = (self.ask(idempotency_key="k") for _ in range(3))
        assert [remaining(one)["once"] for one in (first, again, third)] == [8, 8, 7]
        marks = [one.headers.get("idempotency-replayed") for one in (first, again, third)]
        assert marks == [None, "true", None]

    def test_the_debug_header_is_sent_only_for_a_valid_token_with_both_outcomes(self) -> None:
        tokens = [debug_token(one, now_ns=START * SECOND, ttl_s=60)[0] for one in (_SECRET, b"no")]
        self.start(limits="3/hour", name="api", debug_secret=_SECRET)
        for reply in (self.ask(), self.ask(headgate_debug=tokens[1])):
            assert "headgate-decision" not in reply.headers
        allowed, denied = (self.ask(headgate_debug=tokens[0]) for _ in range(2))
        assert '"api";allowed=?1' in allowed.headers["headgate-decision"]
        assert '"api";allowed=?0' in denied.headers["headgate-decision"]

    def test_a_limit_in_shadow_mode_denies_nothing_and_has_no_headers(self) -> None:
        self.start(limits="1/hour", mode="shadow")
        replies = [self.ask() for _ in range(3)]
        assert [one.status for one in replies] == [200, 200, 200]
        assert not any(name in one.headers for one in replies for name in _FIELDS)

    def test_a_limit_without_headers_still_denies(self) -> None:
        self.start(limits="1/hour", headers="off")
        allowed, denied = self.ask(), self.ask()
        assert (allowed.status, denied.status) == (200, 429)
        assert not any(name in allowed.headers for name in _FIELDS)

    def test_an_app_without_limits_sends_no_headers(self) -> None:
        self.start()
        reply = self.ask()
        assert reply.status == 200
        assert not any(name in reply.headers for name in _FIELDS)
