"""The filters of rules in a real Envoy: each way limits, and does right without the service."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from headgate.gateway.envoy import envoy_limits
from tests.support.decision_service import PLAIN, serving
from tests.support.envoy_filters import front
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import pytest

LOCAL = """
identity: {tier: {header: x-tier, default: free}}
rules:
  - {id: key, match: {endpoint: /key/**}, key_by: api_key, limit: 3/hour, decide: local}
  - {id: ip, match: {endpoint: /ip, method: GET}, key_by: ip, limit: 2/hour, decide: local}
  - {id: all, match: {endpoint: /all}, key_by: global, limit: 4/hour, cost: 2, decide: local}
  - {id: tier, match: {endpoint: /tier}, key_by: user_id, limits: {free: 1/hour, paid: 3/hour},
     decide: local}
  - {id: both, match: {endpoint: /both}, key_by: ip, limit: 3/hour; 2/minute, decide: local}
"""
EXACT = """
rules:
  - {id: open, match: {endpoint: /open/**}, key_by: api_key, limit: 3/hour}
  - {id: login, match: {endpoint: /login, method: POST}, key_by: ip, limit: 2/hour,
     on_store_failure: fail_closed}
  - {id: backed, match: {endpoint: /backed}, key_by: user_id, limit: 3/hour,
     on_store_failure: local}
  - {id: tokens, match: {endpoint: /llm}, key_by: user_id, limit: 100/hour,
     cost: {after: {header: x-tokens}}}
  - {id: bytes, match: {endpoint: /bytes}, key_by: user_id, limit: 10/hour,
     cost: {after: {bytes: true, per: 100}}}
  - {id: elsewhere, match: {endpoint: /open/**}, key_by: global, limit: 1000/hour, decide: local}
"""
QUOTA = """
identity: {fallback: shared}
rules:
  - {id: key, match: {endpoint: /key}, key_by: api_key, limit: 400/hour, decide: quota,
     on_store_failure: fail_closed}
  - {id: ip, match: {endpoint: /ip}, key_by: ip, limit: 6/hour burst 6, decide: quota,
     on_store_failure: local}
  - {id: soft, match: {endpoint: /soft}, key_by: global, limit: 6/hour burst 6, decide: quota}
"""
_UNUSED_PORT = 1


def test_local_limits_are_kept_by_envoy_alone() -> None:
    with front(LOCAL, _UNUSED_PORT) as envoy:
        ada = {"x_api_key": "ada"}
        assert envoy.statuses(4, "/key/a", **ada) == [200, 200, 200, 429]
        assert [envoy.get(path, **ada).status_code for path in _SPELLINGS] == [429] * 5
        assert envoy.passed(4, "/key/a", x_api_key="bob") == 3
        assert envoy.passed(5, "/key") == 3  # by its address
        assert envoy.passed(2, "/keys") == 2
        assert envoy.passed(3, "/ip", x_forwarded_for="192.0.2.1") == 2
        assert envoy.passed(3, "/ip", x_forwarded_for="192.0.2.2") == 2
        assert envoy.get("/ip", "POST", x_forwarded_for="192.0.2.2").status_code == 200
        assert envoy.passed(3, "/ip", x_forwarded_for="2001:db8::1") == 2
        assert envoy.passed(3, "/ip", x_forwarded_for="2001:db8::2") == 0
        assert envoy.passed(4, "/tier", x_user_id="u", x_tier="paid") == 3
        assert envoy.passed(3, "/tier", x_user_id="u") == 1
        assert envoy.passed(4, "/both") == 2
        assert envoy.passed(4, "/all") == 2
        refused = envoy.get("/all")
    assert refused.headers["x-headgate-limit"] == "all"
    assert refused.headers["ratelimit-policy"] == '"all";q=4;w=3600'
    assert 0 < int(refused.headers["retry-after"]) <= 900


_SPELLINGS = ("/KEY/a", "//key/a", "/%6bey/a", "/key;x/a", "/x/../key/a")


def test_invented_keys_give_no_caller_more_than_all_have_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envoy_limits, "MOST_CALLERS", 8)
    rules = "rules: [{id: key, key_by: api_key, limit: 2/hour, decide: local}]"
    with front(rules) as envoy:
        assert envoy.statuses(9, x_api_key="own") == [200, 200, *[429] * 7]
        assert envoy.passed(1, x_api_key="other") == 1  # denials use nothing of others
        seen = [envoy.passed(1, x_api_key=f"invented-{n}") for n in range(8)]
        assert sum(seen) == 8
        assert envoy.passed(3, x_api_key="own") == 2  # forgotten
        seen = [envoy.passed(1, x_api_key=f"more-{n}") for n in range(40)]
        assert sum(seen) == 16 - 13
        assert envoy.passed(9, x_api_key="own") == 0


def test_the_service_is_asked_and_each_rule_does_what_it_says_without_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(serving(tmp_path, rules=f"version: 1{EXACT}", grpc=1))
        envoy = stack.enter_context(front(EXACT, service.grpc_port, decision_timeout=2.0))
        ada = {"x_api_key": "ada"}
        assert envoy.statuses(4, "/open/a", **ada) == [200, 200, 200, 429]
        assert envoy.get("/OPEN/a;x", **ada).json()["limit"] == "open"
        assert envoy.passed(4, "/open", x_api_key="bob") == 3
        assert "ratelimit" not in envoy.get("/other").headers
        logins = [envoy.get("/login", "POST").status_code for _ in range(3)]
        assert logins == [200, 200, 429]
        assert envoy.passed(4, "/backed", x_user_id="ada") == 3
        service.process.kill()
        assert envoy.passed(4, "/open/a", **ada) <= 1  # she has had hers
        assert 3 <= envoy.passed(8, "/open/a", x_api_key="eve") <= 4
        assert envoy.passed(8, "/other", x_api_key="eve") == 8
        assert envoy.get("/login", "POST").status_code == 503
        assert envoy.get("/login").status_code == 200
        assert 3 <= envoy.passed(8, "/backed", x_user_id="bob") <= 4
        (tmp_path / "again").mkdir()
        again = serving(
            tmp_path / "again", rules=f"version: 1{EXACT}", grpc=1, grpc_port=service.grpc_port
        )
        stack.enter_context(again)
        wait_until(
            lambda: envoy.get("/login", "POST").status_code != 503, "the service is found again"
        )


def test_what_a_request_has_cost_is_charged_when_it_is_over(tmp_path: Path) -> None:
    with (
        serving(tmp_path, rules=f"version: 1{EXACT}", grpc=1) as service,
        front(EXACT, service.grpc_port, decision_timeout=2.0) as envoy,
    ):

        def left(rule: str) -> int:
            asked = {"path": "/", "headers": {"x-user-id": "ada"}}
            told = PLAIN.post(f"{service.url}/v1/rate_limit", json=asked).json()["limits"]
            return int(next(one["remaining"] for one in told if one["name"] == rule))

        assert envoy.get("/llm", x_user_id="ada", x_want="60").status_code == 200
        wait_until(lambda: left("tokens") == 40, "60 units are charged")
        assert envoy.get("/llm", x_user_id="ada").status_code == 200
        assert envoy.get("/bytes", x_user_id="ada", x_size="350").status_code == 200
        wait_until(lambda: left("bytes") == 6, "4 units for 350 bytes are charged")
        assert envoy.get("/bytes", x_user_id="ada", x_size="1200").status_code == 200
        wait_until(lambda: left("bytes") == 0, "12 units are charged, though 6 were left")
        refused = [envoy.get("/bytes", x_user_id="ada") for _ in range(3)]
        assert left("tokens") == 39
    assert [one.status_code for one in refused] == [429] * 3
    waits = [int(one.headers["retry-after"]) for one in refused]
    assert waits == sorted(waits, reverse=True)  # what is refused costs nothing afterwards


def test_shares_are_enforced_and_each_rule_does_what_it_says_when_they_run_out(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(
            serving(tmp_path, "--rlqs-ttl", "6", rules=f"version: 1{QUOTA}", grpc=1)
        )
        envoy = stack.enter_context(front(QUOTA, service.grpc_port))
        home, away = {"x_forwarded_for": "192.0.2.1"}, {"x_forwarded_for": "192.0.2.2"}
        wait_until(lambda: _is_by_quota(envoy.get("/ip", **home)), "its share is used up")
        wait_until(lambda: _is_by_quota(envoy.get("/soft")), "all of it is used up")
        refused = envoy.get("/ip", **home)
        assert envoy.get("/ip", **away).status_code == 200
        assert envoy.passed(2, "/key") == 2
        assert envoy.get("/key", x_api_key="bob").status_code == 200
        service.process.kill()
        wait_until(lambda: envoy.get("/key").status_code == 429, "nothing passes", every=0.3)
        wait_until(lambda: envoy.get("/key", x_api_key="bob").status_code == 429, "for bob neither")
        assert envoy.get("/ip", **home).status_code == 429
        assert 1 <= envoy.passed(9, "/ip", **away) <= 6
        wait_until(lambda: not _is_by_quota(envoy.get("/soft")), "only the backstop is left")
        assert envoy.passed(9, "/soft") <= 7
    assert refused.json()["limit"] == "ip"
    assert refused.headers["content-type"] == "application/json"
    assert refused.headers["retry-after"] == "600"


def _is_by_quota(reply: httpx.Response) -> bool:
    """Whether a quota refused, rather than its backstop in the first moments."""
    return reply.status_code == 429 and "x-headgate-limit" not in reply.headers
