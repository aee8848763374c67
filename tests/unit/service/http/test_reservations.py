"""Reservations: held here, settled anywhere, once."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any

import pytest

from headgate.policy.loader import read_policy
from headgate.service.http import HttpApp, HttpOptions
from headgate.service.receipts import LONGEST, Receipts
from headgate.testing import ManualClock
from tests.support.http_app import START, Answer, FakeStore, app_of, ask, check, core_of, post

TOKENS = """
version: 1
rules:
  - {id: tokens, match: {endpoint: "/**"}, key_by: api_key, limit: 100/hour}
  - {id: requests, match: {endpoint: "/**"}, key_by: api_key, limit: 10/hour}
"""
KEY = "sk-live-0123456789"


def reserve(app: Any, cost: object = 30, **more: Any) -> Answer:
    body = {"path": "/llm", "headers": {"x-api-key": KEY}, "cost": cost, **more}
    return post(app, "/v1/reservations", body)


def commit(app: Any, name: str, *content: object) -> Answer:
    path = f"/v1/reservations/{name}/commit"
    return post(app, path, content[0]) if content else ask(app, "POST", path)


def cancel(app: Any, name: str) -> Answer:
    return ask(app, "DELETE", f"/v1/reservations/{name}")


def left(app: Any, rule: str = "tokens") -> int:
    answer = check(app, "/llm", headers={"x-api-key": KEY}, peek=True, cost=0)
    found = {one["id"]: one["remaining"] for one in answer.json["rules"]}
    return int(found[rule])


def two_workers(policy: str = TOKENS, **more: Any) -> tuple[HttpApp, HttpApp, ManualClock]:
    """Two apps that have nothing in common but the store and the secret."""
    clock = ManualClock(START)
    store = FakeStore(clock)
    one, other = (HttpApp(core_of(policy, clock=clock, store=store, **more)) for _ in range(2))
    return one, other, clock


def test_what_is_reserved_is_held_and_settled_in_another_worker() -> None:
    here, there, _ = two_workers()
    answer = reserve(here, {"tokens": 30})
    assert answer.status == 201
    assert answer.headers["location"] == f"/v1/reservations/{answer.json['id']}"
    assert answer.json["expires"] == START + 60
    assert answer.json["allowed"] is True
    assert (left(there), left(there, "requests")) == (70, 9)
    settled = commit(there, answer.json["id"], {"cost": {"tokens": 12}})
    assert (settled.status, settled.json) == (200, {"charged": {"tokens": 12}})
    assert (left(here), left(here, "requests")) == (88, 9)


def test_a_reservation_is_settled_once() -> None:
    here, there, _ = two_workers()
    name = reserve(here, {"tokens": 30}).json["id"]
    assert commit(here, name, {"cost": 10}).status == 200
    for app in (here, there):
        assert commit(app, name, {"cost": 10}).status == 409
        assert cancel(app, name).status == 409
    assert left(here) == 90


def test_without_a_body_what_was_held_is_charged() -> None:
    app = app_of(TOKENS)
    name = reserve(app, {"tokens": 30}).json["id"]
    assert commit(app, name).json == {"charged": {"tokens": 30}}
    other = reserve(app, {"tokens": 30}).json["id"]
    assert commit(app, other, {}).json == {"charged": {"tokens": 30}}
    assert left(app) == 40


def test_more_than_was_held_is_charged_in_full() -> None:
    app = app_of(TOKENS)
    name = reserve(app, {"tokens": 30}).json["id"]
    assert commit(app, name, {"cost": 150}).status == 200
    assert left(app) == 0
    assert reserve(app, {"tokens": 1}).status == 429


def test_a_cost_for_all_rules_is_held_by_all_and_settled_by_all() -> None:
    app = app_of(TOKENS)
    name = reserve(app, 5).json["id"]
    assert commit(app, name, {"cost": 2}).json == {"charged": {"tokens": 2, "requests": 2}}
    assert (left(app), left(app, "requests")) == (98, 8)


def test_a_cancelled_one_leaves_no_trace() -> None:
    here, there, _ = two_workers()
    name = reserve(here, {"tokens": 30}).json["id"]
    answer = cancel(there, name)
    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers  # RFC 9110, 8.6
    assert left(here) == 100
    assert commit(here, name).status == 409


def test_what_does_not_fit_is_refused_as_any_request() -> None:
    app = app_of(TOKENS)
    reserve(app, {"tokens": 80})
    answer = reserve(app, {"tokens": 30})
    assert answer.status == 429
    assert answer.json["limit"] == "tokens"
    assert "id" not in answer.json
    assert left(app) == 20


def test_a_lapsed_one_is_gone_and_charges_nothing() -> None:
    here, there, clock = two_workers()
    name = reserve(here, {"tokens": 30}, ttl=5).json["id"]
    clock.advance(4.9)
    assert left(there) == 70
    clock.advance(0.2)
    assert left(there) == 100
    assert commit(there, name, {"cost": 30}).status == 410
    assert cancel(there, name).status == 410
    assert left(there) == 100


def test_one_that_was_settled_and_is_old_charges_nothing_either() -> None:
    app, _, clock = two_workers()
    name = reserve(app, {"tokens": 30}, ttl=5).json["id"]
    commit(app, name, {"cost": 30})
    clock.advance(6)
    before = left(app)
    assert commit(app, name, {"cost": 30}).status == 410
    assert left(app) == before


@pytest.mark.parametrize(
    "policy",
    [
        TOKENS.replace("100/hour", "200/hour"),
        TOKENS.replace("100/hour", "100/hour sliding_window_counter"),
        TOKENS.replace("100/hour", '"100/hour; 1000/day"'),
        TOKENS.replace("id: tokens", "id: others"),
        "version: 1\nrules: []",
    ],
)
def test_it_is_settled_whatever_became_of_the_rule(policy: str) -> None:
    clock = ManualClock(START)
    core = core_of(TOKENS, clock=clock)
    app = HttpApp(core)
    name = reserve(app, {"tokens": 30}).json["id"]
    core.rules.replace(read_policy(policy))
    assert commit(app, name, {"cost": 10}).status == 200
    assert commit(app, name, {"cost": 10}).status == 409
    core.rules.replace(read_policy(TOKENS))
    assert left(app) == 90


def test_a_rule_with_a_new_limit_counts_what_is_settled() -> None:
    core = core_of(TOKENS)
    app = HttpApp(core)
    name = reserve(app, {"tokens": 30}).json["id"]
    core.rules.replace(read_policy(TOKENS.replace("100/hour", "200/hour")))
    commit(app, name, {"cost": 10})
    assert left(app) == 190


def test_an_id_is_nobodys_to_make_up_or_change() -> None:
    app, _, _ = two_workers()
    name = reserve(app, {"tokens": 30}).json["id"]
    flipped = name[:20] + ("A" if name[20] != "A" else "B") + name[21:]
    for forged in (flipped, name[:-2], name + "AA", "", "x", "%00", "A" * 40, "A" * (LONGEST + 1)):
        assert cancel(app, forged).status == 404, forged
        assert commit(app, forged).status == 404, forged
    assert left(app) == 70


def test_an_id_is_of_one_secret_and_one_namespace() -> None:
    one = Receipts(b"a secret", "headgate")
    for other in (Receipts(b"another", "headgate"), Receipts(b"a secret", "elsewhere")):
        app, _, _ = two_workers()
        name = reserve(app, {"tokens": 30}).json["id"]
        assert one.receipt_of(name.encode()) is None
        assert other.receipt_of(name.encode()) is None


def test_an_id_has_no_secret_in_it() -> None:
    app = app_of(TOKENS)
    name = reserve(app, {"tokens": 30}).json["id"]
    core = core_of(TOKENS)
    found = Receipts(core.secret, core.namespace).receipt_of(name.encode())
    assert found is not None
    assert KEY not in repr(found)
    assert core.secret not in urlsafe_b64decode(name + "==")
    assert len(name) < 300


def test_an_id_that_would_be_too_long_is_not_given_and_nothing_stays_held() -> None:
    rules = "".join(
        f"\n  - {{id: r{n:03}-{'x' * 30}{n * 7919}, key_by: [attribute:a, attribute:b{n}], "
        f"limit: {n + 100}/hour}}"
        for n in range(150)
    )
    app = app_of(f"version: 1\nrules:{rules}")
    attributes = {"a": "k" * 100} | {f"b{n}": f"{n * 31337:x}" * 9 for n in range(150)}
    answer = post(app, "/v1/reservations", {"path": "/", "cost": 9, "attributes": attributes})
    assert answer.status == 422
    after = post(app, "/v1/check", {"path": "/", "peek": True, "attributes": attributes})
    assert all(one["remaining"] == one["quota"] for one in after.json["rules"])


def test_places_under_a_concurrency_limit_are_given_back_at_the_end() -> None:
    policy = """
    version: 1
    rules:
      - {id: slots, key_by: global, algorithm: concurrency, limit: 1, ttl: 300}
      - {id: tokens, key_by: global, limit: 100/hour}
    """
    here, there, _ = two_workers(policy)
    for end in (commit, cancel):
        name = reserve(here, {"tokens": 5}).json["id"]
        assert reserve(there, {"tokens": 5}).status == 429
        assert end(there, name).status in (200, 204)
        assert end(here, name).status == 409
    assert reserve(here, {"tokens": 5}).status == 201


def test_places_alone_are_given_back_too_and_lapse_by_themselves() -> None:
    policy = """
    version: 1
    rules:
      - {id: slots, key_by: global, algorithm: concurrency, limit: 1, ttl: 30}
    """
    here, there, clock = two_workers(policy)
    for end in (commit, cancel):
        made = reserve(here, 1, ttl=60)
        assert made.json["expires"] == START + 30  # places last no longer
        assert reserve(there, 1).status == 429
        assert end(there, made.json["id"]).status in (200, 204)
        assert end(here, made.json["id"]).status == 409
    name = reserve(here, 1, ttl=60).json["id"]
    clock.advance(31)
    assert reserve(there, 1).status == 201
    assert commit(here, name).status == 410


def test_what_no_rule_is_for_has_nothing_to_settle() -> None:
    app = app_of("version: 1\nrules: []")
    name = reserve(app).json["id"]
    assert commit(app, name).json == {"charged": {}}
    assert cancel(app, name).status == 204


def test_a_store_that_is_gone_when_it_is_to_be_settled_can_be_told_later() -> None:
    store = FakeStore()
    app = HttpApp(core_of(TOKENS, store=store), options=HttpOptions(deadline=0.25))
    name = reserve(app, {"tokens": 30}).json["id"]
    store.is_gone = True
    answer = commit(app, name, {"cost": 10})
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    store.is_gone, store.is_stuck = False, True
    assert commit(app, name, {"cost": 10}).status == 503
    store.is_stuck = False
    assert commit(app, name, {"cost": 10}).status == 200
    assert left(app) == 90


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"path": "/"}, "cost"),
        ({"path": "/", "cost": 0}, "cost"),
        ({"path": "/", "cost": {}}, "cost"),
        ({"path": "/", "cost": {"a": 0}}, "cost"),
        ({"path": "/", "cost": 1, "ttl": 0}, "ttl"),
        ({"path": "/", "cost": 1, "ttl": 1e9}, "ttl"),
        ({"path": "/", "cost": 1, "ttl": "60"}, "ttl"),
        ({"path": "/", "cost": 1, "peek": True}, "peek"),
    ],
)
def test_a_reservation_of_nothing_or_for_ever_is_refused(body: object, field: str) -> None:
    answer = post(app_of(TOKENS), "/v1/reservations", body)
    assert answer.status == 400
    assert [one["field"] for one in answer.json["errors"]] == [field]


def test_a_commit_says_a_cost_and_nothing_else() -> None:
    app = app_of(TOKENS)
    name = reserve(app, {"tokens": 30}).json["id"]
    wrong: list[object] = [{"cost": -1}, {"costs": 1}, {"cost": {"tokens": "1"}}, [], b"{"]
    for body in wrong:
        assert commit(app, name, body).status == 400
    path = f"/v1/reservations/{name}/commit"
    assert ask(app, "POST", path, [("content-type", "text/plain")], b"{}").status == 415
    assert ask(app, "GET", path).status == 405
    assert ask(app, "GET", f"/v1/reservations/{name}").headers["allow"] == "DELETE"
    assert left(app) == 70


def test_the_end_of_a_reservation_counts_for_the_wait_for_a_slot() -> None:
    policy = "version: 1\nrules: [{id: slots, key_by: ip, concurrency: {limit: 1, ttl: 60s}}]\n"
    app = app_of(policy)
    body = {"path": "/", "ip": "192.0.2.1", "cost": 1}
    first = post(app, "/v1/reservations", body)
    denied = check(app, "/", "192.0.2.1")
    assert (denied.json["retry_after_ms"], denied.json["is_estimate"]) == (1000, True)
    assert commit(app, first.json["id"]).status == 200
    assert post(app, "/v1/reservations", body).status == 201
    assert check(app, "/", "192.0.2.1").json["retry_after_ms"] != 1000
