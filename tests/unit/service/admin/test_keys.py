"""Single counters over HTTP: looked at, reset, granted more, blocked."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from headgate.policy.fields import instant_text
from headgate.units import SECOND
from tests.support.admin_api import Desk, attended
from tests.unit.service.admin.test_rules import Live

KEY = "ip=192.0.2.1"
BY_KEY = {"rule": "login", "key": KEY}
BY_REQUEST = {"rule": "login", "request": {"method": "POST", "path": "/login", "ip": "192.0.2.1"}}
BY_IDENTITY = {"rule": "login", "identity": {"ip": "192.0.2.1"}}


class TestLookup:
    @pytest.mark.parametrize("named", [BY_KEY, BY_REQUEST, BY_IDENTITY])
    def test_a_counter_by_key_request_or_identity(self, named: dict[str, Any]) -> None:
        async def body(desk: Desk) -> None:
            await desk.hits(2)
            content = await desk.ask("POST /keys:lookup", named)
            assert content.pop("applies", True) is True
            assert content == {
                "rule_id": "login",
                "key": KEY,
                "mode": "enforce",
                "blocked_until": None,
                "extra": 0,
                "limits": [
                    {
                        "limit": "5/m",
                        "algorithm": "token_bucket",
                        "quota": 5,
                        "used": 2,
                        "remaining": 3,
                        "refused": False,
                        "retry_after": 0.0,
                        "reset_after": 24.0,
                    }
                ],
            }
            assert await desk.hits(4) == [True] * 3 + [False]

        attended(body)

    def test_by_the_query_too(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.hits(5)
            content = await desk.ask(f"GET /keys?rule=login&key={KEY}")
            assert content["limits"][0]["refused"] is True
            assert content["limits"][0]["retry_after"] == 12.0

        attended(body)

    def test_tiers_have_limits_of_their_own(self) -> None:
        async def body(desk: Desk) -> None:
            named = {"rule": "api", "identity": {"user_id": "7", "tier": "paid"}}
            content = await desk.ask("POST /keys:lookup", named)
            assert [one["limit"] for one in content["limits"]] == ["20/s", "100/h"]
            assert content["key"] == "user_id=7"
            by_key = {"rule": "api", "key": "user_id=7"}
            status, told = await desk.refusal("POST /keys:lookup", by_key)
            assert (status, "one of free, paid" in told) == (400, True)
            content = await desk.ask("POST /keys:lookup", {**by_key, "tier": "free"})
            assert [one["quota"] for one in content["limits"]] == [10]

        attended(body)

    def test_a_rule_that_is_not_for_the_request_says_so(self) -> None:
        async def body(desk: Desk) -> None:
            named = {"rule": "login", "request": {"path": "/else", "ip": "192.0.2.1"}}
            assert (await desk.ask("POST /keys:lookup", named))["applies"] is False
            nobody = {"rule": "api", "identity": {"user_id": "7", "tier": "gold"}}
            assert (await desk.refusal("POST /keys:lookup", nobody))[0] == 422

        attended(body)

    @pytest.mark.parametrize(
        ("named", "status", "told"),
        [
            ({"rule": "none", "key": KEY}, 404, "no rule 'none' in force"),
            ({"rule": "login"}, 400, "found 0 of key, request, identity"),
            ({**BY_KEY, **BY_REQUEST}, 400, "found 2 of"),
            ({"rule": "login", "key": ""}, 400, "key of a counter"),
            ({"rule": "login", "key": "x" * 5_000}, 400, "key of a counter"),
            ({"key": KEY}, 400, "id of a rule"),
            ({**BY_KEY, "keys": 1}, 400, "no such field"),
            ({"rule": "login", "request": {"pth": "/"}}, 400, "pth"),
            ({"rule": "login", "identity": {"user": "x"}}, 400, "not a part of the identity"),
            ({"rule": "login", "identity": {"ip": 7}}, 400, "a text"),
            ({**BY_IDENTITY, "tier": "free"}, 400, "tier"),
        ],
    )
    def test_what_names_no_counter(self, named: Any, status: int, told: str) -> None:
        async def body(desk: Desk) -> None:
            found = await desk.refusal("POST /keys:lookup", named)
            assert (found[0], told in found[1]) == (status, True), found

        attended(body)

    def test_counters_of_a_rule_are_listed_if_the_store_can(self) -> None:
        async def body(desk: Desk) -> None:
            content = await desk.ask("GET /keys?rule=login&limit=1")
            assert [one["key"] for one in content["counters"]] == ["ip=1"]
            assert (await desk.refusal("GET /keys"))[0] == 400

        attended(body, Desk(live=Live()))

        async def without(desk: Desk) -> None:
            assert (await desk.refusal("GET /keys?rule=login"))[0] == 501

        attended(without)


def test_a_counter_that_is_reset_is_as_new() -> None:
    async def body(desk: Desk) -> None:
        assert await desk.hits(6) == [True] * 5 + [False]
        assert await desk.ask("POST /keys:reset", BY_REQUEST) == {
            "rule_id": "login",
            "key": KEY,
            "reset": True,
        }
        assert await desk.hits(6) == [True] * 5 + [False]
        assert await desk.is_unchanged()

    attended(body)


def test_a_reset_is_for_all_limits_of_all_tiers() -> None:
    async def body(desk: Desk) -> None:
        caller = {"x_user_id": "7", "x_tier": "paid"}
        assert (await desk.hits(21, path="/x", **caller))[-1] is False
        await desk.ask("POST /keys:reset", {"rule": "api", "key": "user_id=7", "tier": "free"})
        named = {"rule": "api", "identity": {"user_id": "7", "tier": "paid"}}
        content = await desk.ask("POST /keys:lookup", named)
        assert [one["used"] for one in content["limits"]] == [0, 0]

    attended(body)


def test_a_grant_makes_every_limit_larger_for_a_while() -> None:
    async def body(desk: Desk) -> None:
        content = await desk.ask("POST /keys:grant", {**BY_REQUEST, "extra": 3, "ttl": 60})
        until = instant_text(desk.clock() + 60 * SECOND)
        assert content == {"rule_id": "login", "key": KEY, "extra": 3, "until": until}
        assert await desk.hits(9) == [True] * 8 + [False]
        shown = await desk.ask("POST /keys:lookup", BY_KEY)
        assert (shown["extra"], shown["limits"][0]["quota"]) == (3, 8)
        desk.clock.advance(60)
        shown = await desk.ask("POST /keys:lookup", BY_KEY)
        assert (shown["extra"], shown["limits"][0]["quota"]) == (0, 5)

    attended(body)


def test_a_block_refuses_everything_until_it_ends_or_is_ended() -> None:
    async def body(desk: Desk) -> None:
        until = instant_text(desk.clock() + 60 * SECOND)
        await desk.ask("POST /keys:block", {**BY_KEY, "until": until})
        assert await desk.hits(1) == [False]
        assert (await desk.ask("POST /keys:lookup", BY_KEY))["blocked_until"] == until
        content = await desk.ask("GET /overrides")
        assert content["overrides"] == [{**BY_KEY, "block": True, "until": until}]
        assert (await desk.ask("GET /overrides?rule=api"))["overrides"] == []
        assert (await desk.ask("POST /keys:unblock", BY_IDENTITY))["block"] is False
        assert await desk.hits(1) == [True]
        assert (await desk.refusal("POST /keys:unblock", BY_KEY))[0] == 404
        await desk.ask("POST /keys:block", {**BY_KEY, "ttl": 5})
        desk.clock.advance(5)
        assert await desk.hits(1) == [True]
        assert (await desk.ask("GET /overrides"))["overrides"] == []

    attended(body)


def test_an_override_goes_by_the_revision_of_the_policy() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.call("GET /overrides")).headers["etag"] == '"1"'
        sent = {**BY_KEY, "ttl": 60}
        assert (await desk.refusal("POST /keys:block", sent, if_match='"7"'))[0] == 412
        await desk.ask("POST /keys:block", sent, if_match='"1"')
        assert (await desk.refusal("POST /keys:unblock", BY_KEY, if_match='"1"'))[0] == 412
        await desk.ask("POST /keys:unblock", BY_KEY, if_match='"2"')

    attended(body)


def test_a_grant_is_ended_by_deleting_the_override() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("POST /keys:grant", {**BY_KEY, "extra": 3, "ttl": 60})
        assert (await desk.refusal("POST /keys:unblock", BY_KEY))[0] == 404
        assert (await desk.refusal("DELETE /overrides?rule=login"))[0] == 400
        await desk.ask(f"DELETE /overrides?rule=login&key={KEY}")
        assert (await desk.refusal(f"DELETE /overrides?rule=login&key={KEY}"))[0] == 404
        assert await desk.hits(6) == [True] * 5 + [False]

    attended(body)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "until"),
        ({"ttl": 60, "until": "2030-01-01T00:00:00Z"}, "until"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": "60"}, "ttl"),
        ({"ttl": True}, "ttl"),
        ({"ttl": 1e12}, "ttl"),
        ({"until": "1970-01-01T00:00:00Z"}, "to come"),
        ({"until": "2999-01-01T00:00:00Z"}, "ten years"),
        ({"until": "tomorrow"}, "date and time"),
        ({"ttl": 60, "extra": 5, "block": True}, "no such field"),
    ],
)
def test_what_is_no_time_changes_nothing(more: dict[str, Any], told: str) -> None:
    async def body(desk: Desk) -> None:
        status, text = await desk.refusal("POST /keys:grant", {**BY_KEY, "extra": 1, **more})
        assert (status, told in text) == (400, True), text
        assert await desk.is_unchanged()

    attended(body)


@pytest.mark.parametrize("extra", [None, 0, -1, 1.5, True, "5", 10**15])
def test_what_is_no_amount_changes_nothing(extra: Any) -> None:
    async def body(desk: Desk) -> None:
        sent = {**BY_KEY, "extra": extra, "ttl": 60}
        assert (await desk.refusal("POST /keys:grant", sent))[0] == 400
        assert await desk.is_unchanged()

    attended(body)


class TestShape:
    """A key that cannot be one of the rule is not taken for one."""

    POLICY: ClassVar[dict[str, Any]] = {
        "version": 1,
        "identity": {"plan": {"attribute": "plan"}},
        "rules": [
            {"id": "secret", "key_by": ["api_key", "ip"], "limit": "5/m"},
            {"id": "all", "key_by": "global", "limit": "5/m"},
            {"id": "plain", "key_by": ["plan", "header:X-Team"], "limit": "5/m"},
        ],
    }
    DIGEST = "~" + "0a" * 16

    @pytest.mark.parametrize(
        ("rule", "key", "is_one"),
        [
            ("secret", f"api_key={DIGEST}&ip=192.0.2.1", True),
            ("secret", "api_key!ip=192.0.2.1&ip=192.0.2.1", True),
            ("secret", "api_key!shared&ip=192.0.2.1", True),
            ("secret", "api_key=sk_live_1234&ip=192.0.2.1", False),
            ("secret", "sk_live_1234", False),
            ("secret", f"api_key={DIGEST}", False),
            ("all", "global", True),
            ("all", "ip=192.0.2.1", False),
            ("plain", "plan=gold&header:x-team=a", True),
            ("plain", "plan=gold&header:x-team=a&ip=192.0.2.1", False),
        ],
    )
    def test_a_key_has_the_parts_of_its_rule_and_secrets_are_digests(
        self, rule: str, key: str, is_one: bool
    ) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("PUT /policy", self.POLICY)
            answer = await desk.call("POST /keys:block", {"rule": rule, "key": key, "ttl": 60})
            assert answer.status_code == (200 if is_one else 400), answer.text
            assert is_one or "expected" in answer.json()["errors"][0]["hint"]

        attended(body)

    def test_a_raw_credential_is_neither_kept_nor_noted_nor_repeated(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("PUT /policy", self.POLICY)
            raw = {"rule": "secret", "key": "sk_live_1234"}
            for verb, more in (
                ("block", {"ttl": 60}),
                ("grant", {"ttl": 60, "extra": 1}),
                ("reset", {}),
                ("unblock", {}),
            ):
                answer = await desk.call(f"POST /keys:{verb}", {**raw, **more})
                assert (answer.status_code, "sk_live" in answer.text) == (400, False)
            await desk.call("DELETE /overrides?rule=secret&key=sk_live_1234")
            assert "sk_live" not in str((desk.storage.head()).document)
            assert "sk_live" not in str(desk.audit.events)

        attended(body)


def test_a_reset_goes_by_the_revision_of_the_policy() -> None:
    async def body(desk: Desk) -> None:
        await desk.hits(5)
        assert (await desk.refusal("POST /keys:reset", BY_KEY, if_match='"7"'))[0] == 412
        assert await desk.hits(1) == [False]
        await desk.ask("POST /keys:reset", BY_KEY, if_match='"1"')
        assert await desk.hits(1) == [True]

    attended(body)
