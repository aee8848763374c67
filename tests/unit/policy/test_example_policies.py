"""The policies that docs/rules.md offers are right, and do what their comments say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config.gateway import GatewaySettings
from headgate.engine.request import Request
from headgate.gateway.envoy.filters import decided
from headgate.policy.loader import examine_policy
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict

FOLDER = Path(__file__).parents[3] / "examples" / "policies"
ALL = sorted(FOLDER.glob("*.yaml"))


def engine(name: str) -> RuleEngine:
    examined = examine_policy((FOLDER / name).read_text("utf-8"), where=name)
    assert examined.policy is not None
    return RuleEngine(examined.policy, clock=ManualClock(1_200_000_000))


def ask(method: str, path: str, peer: str = "203.0.113.7", **headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(method, path, headers=lines, peer=peer)


def refused_after(one: RuleEngine, request: Request, most: int) -> tuple[int, str]:
    """How many were admitted before one was refused, and the rule that refused it."""
    for admitted in range(most):
        verdict = one.check(request)
        if not verdict:
            assert verdict.denied_by is not None
            return admitted, verdict.denied_by.rule.id
        one.release(verdict)
    raise AssertionError(f"{most} were admitted")


def ids(verdict: Verdict) -> list[str]:
    return [part.rule.id for part in verdict.rules]


def test_there_are_seven() -> None:
    assert len(ALL) == 7


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_a_policy_has_no_problems(path: Path) -> None:
    examined = examine_policy(path.read_text("utf-8"), where=path.name)
    assert examined.problems == ()
    assert examined.policy is not None


def test_a_public_api_knows_tiers_costs_and_addresses() -> None:
    one = engine("public-api.yaml")
    assert refused_after(one, ask("GET", "/v1/items"), 100) == (60, "requests")
    paid = ask("GET", "/v1/items", x_api_key="demo-key-1")
    assert refused_after(one, paid, 1_000) == (900, "requests")
    export = ask("POST", "/v1/exports", x_api_key="demo-key-2")
    assert one.check(export).rules[0].cost == 20
    assert refused_after(one, ask("POST", "/v1/accounts", peer="198.51.100.1"), 9) == (3, "signups")


def test_logins_are_slowed_down_from_both_sides() -> None:
    one = engine("login.yaml")
    assert refused_after(one, ask("POST", "//LOGIN/"), 9) == (5, "login-by-address")
    named = [
        Request("POST", "/login", peer=f"198.51.100.{n}", attributes={"username": "ada"})
        for n in range(12)
    ]
    assert [one.check(request).allowed for request in named] == [True] * 10 + [False] * 2


def test_an_llm_gateway_counts_requests_tokens_spend_and_streams() -> None:
    one = engine("llm-gateway.yaml")
    chat = ask("POST", "/v1/chat/completions", x_tenant_id="a", x_reserved_tokens="9000")
    verdict = one.check(chat)
    assert ids(verdict) == ["requests", "tokens", "spend", "streams"]
    assert [part.cost for part in verdict.rules][:3] == [1, 9_000, 100]
    assert verdict.slots is not None
    assert refused_after(one, chat, 5) == (1, "tokens")


def test_tokens_are_charged_when_they_are_known_and_gateways_decide_the_rest() -> None:
    examined = examine_policy((FOLDER / "llm-tokens.yaml").read_text("utf-8"), where="here")
    assert examined.policy is not None
    ways = {one.rule: one.decide for one in decided(examined.policy, GatewaySettings())}
    assert ways == {
        "requests": "exact",
        "tokens": "exact",
        "downloads": "exact",
        "models": "quota",
        "flood": "local",
    }
    one = engine("llm-tokens.yaml")
    chat = ask("POST", "/v1/chat/completions", x_api_key="a")
    verdict = one.check(chat)
    assert ids(verdict) == ["requests", "tokens", "flood"]
    assert [part.cost for part in verdict.rules] == [1, 200, 1]


def test_a_fragile_downstream_is_shared_and_a_candidate_only_watches() -> None:
    one = engine("fragile-downstream.yaml")
    call = ask("GET", "/ledger/entries", x_service_name="billing")
    assert refused_after(one, call, 50) == (20, "ledger-share")
    watched = one.check(ask("GET", "/ledger/entries", x_service_name="billing"))
    assert [part.rule.id for part in watched.would_deny] == ["ledger-share-stricter"]


def test_an_hourly_quota_can_be_looked_up_for_nothing() -> None:
    one = engine("hourly-quota.yaml")
    looks = [one.check(ask("GET", "/rate_limit")) for _ in range(3)]
    for look in looks:
        one.release(look)
    assert looks[-1].rules[0].decision.remaining == 60
    assert refused_after(one, ask("GET", "/repos"), 99) == (60, "core")
    user = ask("GET", "/search/code", x_user_id="ada", x_account_kind="user")
    assert refused_after(one, user, 99) == (30, "search")
