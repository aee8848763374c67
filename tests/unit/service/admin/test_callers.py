"""Callers over HTTP: all counters of one."""

from __future__ import annotations

from typing import Any

from headgate.policy.identity.parts import hashed_key
from tests.support.admin_api import READER, Desk, attended

LOOKUP = "POST /callers:lookup"


async def counters(desk: Desk, **body: Any) -> dict[str, Any]:
    """The counters of a caller by rule."""
    found = await desk.ask(LOOKUP, body)
    return {one["rule_id"]: one for one in found["counters"]}


def test_every_rule_that_counts_a_caller_says_what_is_left() -> None:
    async def body(desk: Desk) -> None:
        desk.token = READER
        assert await desk.hits(2) == [True, True]
        by_key = await counters(desk, key="ip=192.0.2.1")
        assert by_key["login"]["limits"][0]["remaining"] == 3
        assert by_key["login"]["is_shared"] is False
        by_identity = await counters(desk, identity={"ip": "192.0.2.1"})
        assert by_identity["login"]["limits"] == by_key["login"]["limits"]
        assert by_identity["login"]["key"] == "ip=192.0.2.1"

    attended(body)


def test_a_caller_that_is_busy_is_found_by_the_hash_that_is_shown() -> None:
    async def body(desk: Desk) -> None:
        await desk.hits(9)
        shown = hashed_key("ip=192.0.2.1")
        found = await counters(desk, key=shown)
        assert found["login"]["key"] == found["login"]["shown_key"] == shown
        assert found["login"]["limits"][0]["remaining"] == 0
        assert found["login"]["denied_per_second"] > 0
        await desk.ask("POST /keys:reset", {"rule": "login", "key": shown})
        assert (await counters(desk, key=shown))["login"]["limits"][0]["remaining"] == 5
        blocked = {"rule": "login", "key": shown, "ttl": 60}
        await desk.ask("POST /keys:block", blocked)
        assert (await counters(desk, key=shown))["login"]["blocked_until"] is not None
        await desk.ask(f"DELETE /overrides?rule=login&key={shown}")
        assert (await counters(desk, key=shown))["login"]["blocked_until"] is None
        status, text = await desk.refusal(LOOKUP, {"key": "ip=~0123456789ab"})
        assert status == 404
        assert "not one of the busy keys" in text

    attended(body)


def test_a_secret_is_looked_up_by_its_digest() -> None:
    async def body(desk: Desk) -> None:
        rule = {"key_by": "api_key", "limit": "7/m"}
        await desk.ask("PUT /rules/keys", rule)
        found = await counters(desk, identity={"api_key": "sesame"})
        key = found["keys"]["key"]
        assert "sesame" not in key
        assert (await counters(desk, key=key))["keys"]["limits"][0]["remaining"] == 7

    attended(body)


def test_what_all_callers_share_is_marked() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("PUT /rules/all", {"key_by": "global", "limit": "7/m"})
        assert (await counters(desk, key="ip=192.0.2.1"))["all"]["is_shared"] is True
        assert (await counters(desk, identity={"ip": "192.0.2.1"}))["all"]["is_shared"] is True

    attended(body)


def test_a_body_without_a_caller_is_rejected() -> None:
    async def body(desk: Desk) -> None:
        nobody: dict[str, Any] = {"identity": {}}
        for wrong in ({}, {"key": "a", **nobody}, {"key": "nobody=1"}, nobody):
            status, _ = await desk.refusal(LOOKUP, wrong)
            assert status in (400, 422), wrong

    attended(body)
