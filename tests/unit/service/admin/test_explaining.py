"""What would become of a request is told with reasons, and nothing is counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headgate.control.editor import EditRequest
from headgate.control.edits import replace_policy
from headgate.observability import RECORDER
from headgate.policy.identity.parts import hashed_key
from headgate.service.admin.reports import MOST_EXPLAINED
from tests.support.admin_api import READER, Desk, attended
from tests.support.http_app import FakeStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOGIN = {"method": "POST", "path": "/login", "ip": "192.0.2.1"}


def rule(name: str, **fields: Any) -> dict[str, Any]:
    limit = {} if "concurrency" in fields else {"limit": "5/minute"}
    return {"id": name, "key_by": "ip", **limit, **fields}


def explaining(
    body: Callable[[Desk], Awaitable[None]], *rules: dict[str, Any], **policy: Any
) -> None:
    """Run *body* at a desk where these are the rules; the desk's own if there are none."""

    async def main(desk: Desk) -> None:
        if rules:
            desk.editor.apply(
                replace_policy({"version": 1, "rules": list(rules), **policy}),
                EditRequest(author="eve"),
            )
            desk.watcher.learn(desk.storage.head())
        await body(desk)

    attended(main)


def test_each_rule_that_applies_tells_its_key_cost_and_limits() -> None:
    async def body(desk: Desk) -> None:
        await desk.hits(2)
        told = await desk.ask("POST /explain", LOGIN)
        assert told["allowed"] is True
        assert told["denied_by"] is None
        assert told["source"] == "store"
        assert told["revision"] == 1
        (login,) = told["rules"]
        limits = login.pop("limits")
        assert login == {
            "rule_id": "login",
            "mode": "enforce",
            "key": hashed_key("ip=192.0.2.1"),
            "cost": 1,
            "allowed": True,
            "source": "store",
            "denies": False,
        }
        assert [(one["limit"], one["remaining"]) for one in limits] == [("5/m", 3)]
        assert limits[0]["retry_after"] == 0
        assert limits[0]["reset_after"] == 24

    explaining(body)


def test_nothing_is_counted_however_often_it_is_asked() -> None:
    async def body(desk: Desk) -> None:
        before = RECORDER.requests[True][0], RECORDER.requests[False][0]
        for _ in range(20):
            await desk.ask("POST /explain", LOGIN)
        assert (RECORDER.requests[True][0], RECORDER.requests[False][0]) == before
        assert await desk.hits(6) == [True] * 5 + [False]

    explaining(body)


def test_a_refusal_says_by_whom_and_for_how_long_and_is_answered_with_200() -> None:
    async def body(desk: Desk) -> None:
        await desk.hits(5)
        told = await desk.ask("POST /explain", LOGIN)
        assert (told["allowed"], told["denied_by"], told["retry_after"]) == (False, "login", 12)
        assert told["rules"][0]["denies"] is True
        assert told["rules"][0]["limits"][0]["remaining"] == 0

    explaining(body)


def test_why_each_other_rule_does_not_apply_is_said() -> None:
    async def body(desk: Desk) -> None:
        told = await desk.ask("POST /explain", {"method": "GET", "path": "/a", "ip": "192.0.2.1"})
        assert {one["rule_id"]: one["why"] for one in told["not_applied"]} == {
            "path": "path is /a, expected /b",
            "method": "method is GET, expected POST",
            "off": "it is switched off (mode: off)",
            "tier": "the caller has no tier, and there are limits for paid only",
            "turns": "in shadow no request waits",
        }
        assert told["not_applied_count"] == 5
        assert [one["rule_id"] for one in told["rules"]] == ["applies"]

    explaining(
        body,
        rule("path", match={"endpoint": "/b"}),
        rule("method", match={"method": "POST"}),
        rule("applies"),
        rule("off", mode="off"),
        {"id": "tier", "key_by": "ip", "limits": {"paid": "5/s"}},
        {"id": "turns", "key_by": "ip", "fair": {"slots": 3}, "mode": "shadow"},
    )


def test_a_rule_in_shadow_refuses_and_yet_denies_nothing() -> None:
    async def body(desk: Desk) -> None:
        await desk.hits(6)
        told = await desk.ask("POST /explain", LOGIN)
        (shadow,) = told["rules"]
        assert (told["allowed"], shadow["allowed"], shadow["denies"]) == (True, False, False)

    explaining(body, rule("shy", mode="shadow"))


def test_a_rule_that_gives_turns_applies_without_limits() -> None:
    async def body(desk: Desk) -> None:
        told = await desk.ask("POST /explain", LOGIN)
        (turns,) = told["rules"]
        assert (turns["rule_id"], turns["limits"], turns["turn"]) == ("turns", [], {"weight": 1})
        assert told["source"] is None

    explaining(body, {"id": "turns", "key_by": "ip", "fair": {"slots": 3}})


def test_a_caller_who_is_blocked_is_refused_by_that_alone() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("POST /keys:block", {"rule": "one", "key": "ip=192.0.2.1", "ttl": 60})
        told = await desk.ask("POST /explain", LOGIN)
        assert (told["allowed"], told["denied_by"], told["source"]) == (False, "one", "override")
        (other,) = told["not_applied"]
        assert other["why"] == "it is not checked, because an override blocks the caller"

    explaining(body, rule("one"), rule("two"))


def test_a_request_that_was_counted_before_is_told_to_be_free() -> None:
    async def body(desk: Desk) -> None:
        await desk.hits(idempotency_key='"k"')
        told = await desk.ask("POST /explain", {**LOGIN, "headers": {"idempotency-key": '"k"'}})
        assert told["is_replay"] is True
        (seen,) = told["not_applied"]
        assert seen["why"] == "it has counted a request with this idempotency key before"
        assert [one["rule_id"] for one in told["rules"]] == ["plain"]

    explaining(body, rule("once", idempotency={}), rule("plain"))


def test_slots_are_looked_at_and_not_taken() -> None:
    async def body(desk: Desk) -> None:
        for _ in range(3):
            told = await desk.ask("POST /explain", LOGIN)
            (limit,) = told["rules"][0]["limits"]
            assert (limit["limit"], limit["remaining"]) == ("1 at the same time", 1)

    explaining(body, rule("slots", concurrency=1))


def test_who_asks_is_told_without_secrets() -> None:
    async def body(desk: Desk) -> None:
        headers = {"x-api-key": "hunter2", "x-user-id": "u" * 100, "x-tenant-id": "acme"}
        answer = await desk.call("POST /explain", {**LOGIN, "headers": headers})
        identity = answer.json()["identity"]
        assert "hunter2" not in answer.text
        assert identity["ip"] == "192.0.2.1"
        assert identity["api_key"].startswith("~")
        assert identity["user_id"] == "u" * 80 + "..."
        assert identity["tenant"] == "acme"
        assert identity["tier"] is None

    explaining(body)


def test_keys_are_clear_where_the_settings_say_so() -> None:
    async def body(desk: Desk) -> None:
        told = await desk.ask("POST /explain", LOGIN)
        assert told["rules"][0]["key"] == "ip=192.0.2.1"

    desk = Desk()
    desk.show_key = str
    attended(body, desk)


def test_the_class_of_a_request_is_told_if_the_policy_has_classes() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.ask("POST /explain", LOGIN))["priority"] == "critical"

    explaining(body, rule("one"), priority=[{"class": "critical", "match": {"endpoint": "/login"}}])


def test_the_cost_may_be_said_for_all_or_by_rule() -> None:
    async def body(desk: Desk) -> None:
        told = await desk.ask("POST /explain", {**LOGIN, "cost": 6})
        assert told["rules"][0]["cost"] == 6
        assert (told["allowed"], told["retry_after"]) == (False, None)
        told = await desk.ask("POST /explain", {**LOGIN, "cost": {"login": 2}, "peek": True})
        assert told["rules"][0]["cost"] == 2

    explaining(body)


def test_of_many_rules_the_nearest_are_told_and_all_are_counted() -> None:
    async def body(desk: Desk) -> None:
        told = await desk.ask("POST /explain", {"path": "/here"})
        listed = [one["rule_id"] for one in told["not_applied"]]
        assert len(listed) == MOST_EXPLAINED
        assert told["not_applied_count"] == 300
        assert listed[-1] == "r299"

    many = [rule(f"r{n}", match={"endpoint": f"/far/{n}"}) for n in range(299)]
    explaining(body, *many, rule("r299", match={"endpoint": "/here", "method": "POST"}))


def test_what_is_wrong_with_a_body_is_named_by_its_field() -> None:
    async def body(desk: Desk) -> None:
        for sent, fields in (
            ({}, ["path"]),
            ({"path": "login"}, ["path"]),
            ({"path": "/", "ip": "nowhere", "cost": -1}, ["ip", "cost"]),
            ({"path": "/", "adress": "x"}, ["adress"]),
        ):
            status, text = await desk.refusal("POST /explain", sent)
            assert status == 400
            assert [one["field"] for one in json.loads(text)["errors"]] == fields
        broken = await desk.refusal("POST /explain", b"{", content_type="application/json")
        assert broken[0] == 400
        assert (await desk.refusal("POST /explain?x=1", LOGIN))[0] == 400
        assert (await desk.refusal("GET /explain"))[0] == 405

    explaining(body)


def test_who_may_read_may_ask() -> None:
    async def body(desk: Desk) -> None:
        desk.token = READER
        await desk.ask("POST /explain", LOGIN)
        desk.token = None
        assert (await desk.refusal("POST /explain", LOGIN))[0] == 401

    explaining(body)


def test_a_store_that_is_gone_is_told_as_the_source() -> None:
    store = FakeStore()

    async def body(desk: Desk) -> None:
        store.is_gone = True
        told = await desk.ask("POST /explain", LOGIN)
        assert (told["source"], told["rules"][0]["source"]) == ("fail_open", "fail_open")

    attended(body, Desk(store=store))
