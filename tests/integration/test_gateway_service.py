"""What the service and the gateway's Envoy say to each other, seen by clients."""

from __future__ import annotations

import json

import httpx
import pytest

from headgate.testing import ManualClock
from tests.support.gateway_service import Service, exact, gateway
from tests.support.rls_client import NOON, DistantStore
from tests.support.servers import wait_until

ONCE = "version: 1\nrules: [{id: once, key_by: api_key, limit: 1/hour%s}]\n"
SPENT = """
version: 1
rules:
  - id: tokens
    match: {endpoint: /chat}
    key_by: api_key
    limit: 100/hour
    cost: {after: {header: x-tokens}}
  - id: bytes
    match: {endpoint: /files/**}
    key_by: api_key
    limit: 10/hour
    cost: {after: {bytes: true, per: 100}}
"""
ADA = {"x-api-key": "ada"}


def _get(port: int, path: str = "/", **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", headers=ADA | headers)


def test_a_refused_client_gets_the_body_and_the_headers_that_it_gets_over_http() -> None:
    with Service(ONCE % "") as service, gateway(service, exact("x-api-key")) as (port, _):
        passed, refused = _get(port), _get(port)
    assert (passed.status_code, passed.text) == (200, "xx")
    assert passed.headers["x-ratelimit-remaining"] == "0"
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/json"
    wait = int(refused.headers["retry-after"])
    assert 3500 < wait <= 3600
    assert refused.headers["ratelimit"] == f'"once";r=0;t={wait}'
    assert refused.headers["ratelimit-policy"] == '"once";q=1;w=3600'
    body = refused.json()
    assert (body["error"], body["limit"]) == ("rate_limit_exceeded", "once")
    assert body["retry_after"] == wait


def test_rules_that_the_gateway_decides_are_left_to_it() -> None:
    rules = ONCE % "" + "  - {id: twice, key_by: api_key, limit: 2/hour}\n"
    rules = rules.replace("rules: [{id: once", "rules:\n  - {id: once").replace("}]", "}")
    chosen = exact("x-api-key", decided="once,other")
    with Service(rules) as service, gateway(service, chosen) as (port, _):
        answers = [_get(port) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[-1].json()["limit"] == "twice"


def test_an_outage_is_a_503_that_says_so() -> None:
    store = DistantStore(ManualClock(NOON))
    store.is_gone = True
    rules = ONCE % ", on_store_failure: fail_closed"
    with Service(rules, store) as service, gateway(service, exact("x-api-key")) as (port, _):
        refused = _get(port)
        store.is_gone = False
        again = [_get(port).status_code for _ in range(2)]
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/json"
    assert refused.json()["error"] == "temporarily_unavailable"
    assert "retry-after" in refused.headers
    assert again == [200, 429]


@pytest.mark.parametrize(
    ("path", "asked", "amount"),
    [("/chat", {"x-want": "60"}, 60), ("/files/a", {"x-size": "550"}, 6)],
)
def test_what_a_response_has_cost_is_charged_when_it_is_over(
    path: str, asked: dict[str, str], amount: int
) -> None:
    reports = [("tokens", "%RESPONSE_HEADER(x-tokens)%"), ("bytes", "%BYTES_SENT%")]
    chosen = exact("x-api-key", reports=reports)
    with Service(SPENT) as service, gateway(service, chosen) as (port, envoy):
        whole = 100 if path == "/chat" else 10

        def told() -> int:
            return envoy.stats("cluster.headgate.upstream_rq_completed").popitem()[1]

        first = _get(port, path, **asked)
        wait_until(lambda: told() == 2, "the first report is taken")
        second = _get(port, path, **asked)
        wait_until(lambda: told() == 4, "the second one is")
        refused = [_get(port, path) for _ in range(3)]
        wait_until(lambda: told() >= 7, "so are the requests that are refused")
        other = _get(port, path, **{"x-api-key": "bob"})
    assert first.headers["x-ratelimit-remaining"] == str(whole - 1)
    assert second.headers["x-ratelimit-remaining"] == str(whole - amount - 1)
    assert [one.status_code for one in refused] == [429] * 3
    debt = 2 * amount - whole + 1
    waits = [json.loads(one.content)["retry_after"] for one in refused]
    seconds = 3600 / whole
    assert all((debt - 1) * seconds < wait <= debt * seconds for wait in waits), (
        "what is refused costs nothing, though Envoy reports the bytes of it"
    )
    assert other.headers["x-ratelimit-remaining"] == str(whole - 1)
