"""Rules over HTTP: put, got, listed, deleted, switched, previewed."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.control.live_counters import FoundCounters, LiveCounter
from headgate.errors import StoreError
from tests.support.admin_api import RULES, Desk, attended

RULE: dict[str, Any] = {"key_by": "ip", "limit": "7/s"}


def test_a_rule_is_put_and_in_force_when_it_is_answered() -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.call("PUT /rules/new", {"key_by": "ip", "limit": "1/m"})
        assert answer.status_code == 200
        assert answer.json() == {"rule_id": "new", "version": 2}
        assert answer.headers["etag"] == '"2"'
        assert answer.headers["x-headgate-revision"] == "2"
        assert await desk.hits(2, path="/other") == [True, False]

    attended(body)


def test_what_is_put_is_what_is_got() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("PUT /rules/new", RULE)
        answer = await desk.call("GET /rules/new")
        text = "key_by: ip\nlimit: 7/s\n"
        assert answer.json() == {"rule_id": "new", "version": 2, "rule": RULE, "text": text}
        assert answer.headers["etag"] == '"2"'
        assert answer.headers["cache-control"] == "no-store"
        assert (await desk.call("GET /rules/new", if_none_match='"2"')).status_code == 304
        head = await desk.call("HEAD /rules/new")
        assert (head.status_code, head.content) == (200, b"")

    attended(body)


@pytest.mark.parametrize("tag", ['"1"', "1", '"9", "1"', "*"])
def test_the_right_version_lets_a_change_through(tag: str) -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.ask("PUT /rules/login", RULE, if_match=tag))["version"] == 2

    attended(body)


@pytest.mark.parametrize("tag", ['"2"', "0", 'W/"1"', '"abc"', '""', '"9999999999999999999999"'])
def test_a_stale_version_is_412_and_changes_nothing(tag: str) -> None:
    async def body(desk: Desk) -> None:
        status, told = await desk.refusal("PUT /rules/login", RULE, if_match=tag)
        assert status == 412
        assert "has version 1; the request names" in told
        assert await desk.is_unchanged()

    attended(body)


def test_a_version_that_is_none_is_400() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.refusal("PUT /rules/login", RULE, if_match="latest"))[0] == 400
        assert (await desk.refusal("PUT /rules/login", RULE, if_none_match='"1"'))[0] == 400

    attended(body)


def test_a_rule_can_be_made_only_if_it_is_new() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.refusal("PUT /rules/login", RULE, if_none_match="*"))[0] == 412
        assert (await desk.ask("PUT /rules/new", RULE, if_none_match="*"))["version"] == 2

    attended(body)


def test_a_rule_that_is_wrong_is_422_with_every_place() -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.call("PUT /rules/new", {"key_by": "ipp", "limitt": "1/s"})
        assert answer.status_code == 422
        errors = answer.json()["errors"]
        assert {error["rule_id"] for error in errors} == {"new"}
        assert {error["field"] for error in errors} == {"rules[2].key_by", "rules[2].limitt"}
        assert await desk.is_unchanged()

    attended(body)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"limit": NaN}', 400),
        (b'{"a": 1, "a": 2}', 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b'{"x": "' + b"y" * 2_200_000 + b'"}', 413),
        (b'{"key_by": "ip", "limit": "1/s", "description": "' + b"y" * 1_100_000 + b'"}', 422),
    ],
)
def test_bodies_that_are_no_json_or_too_large(body: bytes, status: int) -> None:
    async def main(desk: Desk) -> None:
        answer = await desk.refusal("PUT /rules/new", body, content_type="application/json")
        assert answer[0] == status
        assert await desk.is_unchanged()

    attended(main)


def test_a_body_of_another_kind_is_415() -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.refusal("PUT /rules/new", b"a=b", content_type="text/plain")
        assert answer[0] == 415

    attended(body)


def test_warnings_come_with_the_answer() -> None:
    async def body(desk: Desk) -> None:
        content = await desk.ask("PUT /rules/new", {**RULE, "mode": "off"})
        assert [one["message"] for one in content["warnings"]] == ["the rule is switched off"]

    attended(body)


def test_a_rule_is_deleted() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.refusal("DELETE /rules/login", if_match='"7"'))[0] == 412
        content = await desk.ask("DELETE /rules/login", if_match='"1"')
        assert content == {"rule_id": "login", "revision": 2}
        assert (await desk.refusal("GET /rules/login"))[0] == 404
        assert (await desk.refusal("DELETE /rules/login"))[0] == 404
        assert await desk.hits(9) == [True] * 9

    attended(body)


class TestListing:
    def test_all_rules_with_their_versions(self) -> None:
        async def body(desk: Desk) -> None:
            answer = await desk.call("GET /rules")
            content = answer.json()
            assert (content["revision"], content["total"], content["next_offset"]) == (1, 2, None)
            bare = {name: value for name, value in RULES[0].items() if name != "id"}
            assert content["rules"][0] == {"rule_id": "login", "version": 1, "rule": bare}
            assert answer.headers["etag"] == '"1"'

        attended(body)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("key_by=user_id", ["api"]),
            ("endpoint=/login", ["login", "api"]),
            ("endpoint=/else", ["api"]),
            ("tier=paid", ["api"]),
            ("q=LOGIN", ["login"]),
            ("mode=off", []),
            ("limit=1", ["login"]),
            ("limit=1&offset=1", ["api"]),
            ("offset=5", []),
        ],
    )
    def test_filters_and_pages(self, query: str, expected: list[str]) -> None:
        async def body(desk: Desk) -> None:
            content = await desk.ask(f"GET /rules?{query}")
            assert [rule["rule_id"] for rule in content["rules"]] == expected
            assert content["next_offset"] == (1 if query == "limit=1" else None)

        attended(body)

    @pytest.mark.parametrize(
        ("query", "told"),
        [
            ("mod=off", "did you mean 'mode'"),
            ("mode=on", "enforce, shadow, off"),
            ("limit=-1", "whole number"),
            ("limit=1000000", "from 0 to 1000"),
            ("mode=off&mode=off", "twice"),
        ],
    )
    def test_a_query_that_is_wrong(self, query: str, told: str) -> None:
        async def body(desk: Desk) -> None:
            status, text = await desk.refusal(f"GET /rules?{query}")
            assert (status, told in text) == (400, True), text

        attended(body)


class TestSwitch:
    def test_a_rule_is_off_at_once_and_on_again_as_it_was(self) -> None:
        async def body(desk: Desk) -> None:
            content = await desk.ask("POST /rules/login:disable")
            assert {**content, "warnings": None} == {
                "rule_id": "login",
                "version": 2,
                "mode": "off",
                "warnings": None,
            }
            assert await desk.hits(9) == [True] * 9
            content = await desk.ask("POST /rules/login:enable")
            assert content == {"rule_id": "login", "version": 3, "mode": "enforce"}
            assert await desk.hits(6) == [True] * 5 + [False]

        attended(body)

    def test_it_can_come_back_in_shadow(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("POST /rules/login:disable")
            content = await desk.ask("POST /rules/login:enable", {"mode": "shadow"})
            assert content["mode"] == "shadow"

        attended(body)

    def test_what_is_wrong_is_told(self) -> None:
        async def body(desk: Desk) -> None:
            assert (await desk.refusal("POST /rules/none:disable"))[0] == 404
            assert (await desk.refusal("POST /rules/login:enable", {"mode": "off"}))[0] == 400
            assert (await desk.refusal("POST /rules/login:disable", {"mode": "off"}))[0] == 400
            assert (await desk.refusal("POST /rules/login:disable", if_match='"9"'))[0] == 412
            await desk.ask("PUT /rules/new", {**RULE, "mode": "off"})
            assert (await desk.refusal("POST /rules/new:enable"))[0] == 409

        attended(body)


class Live:
    """A store with two counters of `login`; one that cannot be asked if *is_down*."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down

    async def find(self, rules: Any, *, most: int, pattern: str | None = None) -> FoundCounters:
        if self.is_down:
            raise StoreError("no", reason="timeout")
        counters = [LiveCounter("login", f"ip={used}", 0, used) for used in (1, 3)]
        return FoundCounters(tuple(one for one in counters if one.rule in rules)[:most])


class TestPreview:
    def test_what_would_change_and_for_whom(self) -> None:
        async def body(desk: Desk) -> None:
            rules = {"login": {**RULE, "limit": "2/m"}, "api": None}
            content = await desk.ask("POST /rules:preview", {"rules": rules})
            assert (content["revision"], content["valid"]) == (1, True)
            changes = [(one["rule_id"], one["change"]) for one in content["changes"]["rules"]]
            assert changes == [("login", "changed"), ("api", "removed")]
            effects = [(one["rule_id"], one["effect"]) for one in content["consequences"]]
            assert effects == [("login", "match"), ("login", "tighter"), ("api", "gone")]
            affected = content["counters"]["affected"]
            told = [(one["key"], one["refused_now"], one["refused_after"]) for one in affected]
            assert told == [("ip=3", False, True), ("ip=1", False, False)]
            assert [one["shown_key"][:4] for one in affected] == ["ip=~", "ip=~"]
            assert await desk.is_unchanged()

        attended(body, Desk(live=Live()))

    def test_without_a_store_to_look_through_it_says_so(self) -> None:
        async def body(desk: Desk) -> None:
            content = await desk.ask("POST /rules:preview", {"rules": {"login": RULE}})
            assert content["counters"]["available"] is False

        attended(body)
        attended(body, Desk(live=Live(is_down=True)))

    def test_what_could_not_be_put_in_force_is_told_as_such(self) -> None:
        async def body(desk: Desk) -> None:
            content = await desk.ask("POST /rules:preview", {"rules": {"login": {"limit": "?"}}})
            assert content["valid"] is False
            assert content["errors"]

        attended(body)

    @pytest.mark.parametrize("rules", [None, {}, [], {"login": 1}])
    def test_what_is_no_preview_is_400(self, rules: Any) -> None:
        async def body(desk: Desk) -> None:
            assert (await desk.refusal("POST /rules:preview", {"rules": rules}))[0] == 400
            assert (await desk.refusal("POST /rules:preview", {"rule": {}}))[0] == 400

        attended(body)


YAML_TYPE = "application/yaml"


def test_a_rule_is_put_and_previewed_as_yaml() -> None:
    async def body(desk: Desk) -> None:
        text = b"# a comment\nkey_by: ip\nlimit: 8/s  # more\n"
        preview = await desk.ask("POST /rules/new:preview", text, content_type=YAML_TYPE)
        assert preview["valid"]
        assert preview["changes"]["rules"][0]["change"] == "added"
        assert await desk.is_unchanged()
        await desk.ask("PUT /rules/new", text, content_type=YAML_TYPE)
        rule = (await desk.ask("GET /rules/new"))["rule"]
        assert rule == {"key_by": "ip", "limit": "8/s"}

    attended(body)


def test_errors_of_a_rule_in_yaml_have_a_line_and_a_column() -> None:
    async def body(desk: Desk) -> None:
        text = b"key_by: ip\n\nlimit: 8/parsec\n"
        preview = await desk.ask("POST /rules/new:preview", text, content_type=YAML_TYPE)
        answer = await desk.call("PUT /rules/new", text, content_type=YAML_TYPE)
        for found in (preview, answer.json()):
            [error] = found["errors"]
            assert (error["line"], error["column"]) == (3, 1)
        answer = await desk.call("PUT /rules/new", b"key_by: [\n", content_type=YAML_TYPE)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["line"] == 2
        assert await desk.is_unchanged()

    attended(body)


def test_the_history_of_a_rule_has_the_revisions_that_changed_it() -> None:
    async def body(desk: Desk) -> None:
        for number, name in enumerate(("login", "api", "login", "api"), 2):
            await desk.ask(f"PUT /rules/{name}", RULE | {"limit": f"{number}/m"})
        found = await desk.ask("GET /history?rule=login")
        assert [one["revision"] for one in found["revisions"]] == [4, 2, 1]
        assert found["next_before"] is None
        page = await desk.ask("GET /history?rule=login&limit=2")
        assert [one["revision"] for one in page["revisions"]] == [4, 2]
        rest = await desk.ask(f"GET /history?rule=login&before={page['next_before']}")
        assert [one["revision"] for one in rest["revisions"]] == [1]
        assert (await desk.ask("GET /history?rule=nobody"))["revisions"] == []

    attended(body)
