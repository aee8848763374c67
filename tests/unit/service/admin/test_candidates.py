"""Trying a rule beside another, and adopting it, over the admin API."""

from __future__ import annotations

from typing import Any

import pytest

from headgate import rule_engine
from headgate.engine import recorder
from headgate.observability.candidates import Candidates, merged_candidates
from tests.support.admin_api import READER, Desk, attended

TRIED: dict[str, Any] = {"match": {"endpoint": "/login"}, "key_by": "ip", "limit": "3/minute"}
LOGIN = {**TRIED, "limit": "5/minute"}


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Candidates:
    fresh = Candidates()
    for module in (recorder, rule_engine):
        monkeypatch.setattr(module, "CANDIDATES", fresh)
    return fresh


def test_a_rule_is_tried_counted_and_adopted(candidates: Candidates) -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.call("POST /rules/login/candidate", TRIED, x_change_note="is 3 enough?")
        assert answer.status_code == 200
        assert answer.json() == {
            "rule_id": "login-candidate",
            "version": 2,
            "mode": "shadow",
            "candidate_of": "login",
        }
        assert answer.headers["etag"] == '"2"'
        assert answer.headers["x-headgate-revision"] == "2"
        assert await desk.hits(7) == [True] * 5 + [False] * 2
        [told] = merged_candidates([candidates.snapshot()], 0)
        assert (told["rule_id"], told["candidate_of"]) == ("login-candidate", "login")
        assert (told["would_deny"], told["newly_denied"], told["denied_by_both"]) == (4, 2, 2)

        adopted = await desk.call("POST /rules/login/adopt", if_match=answer.headers["etag"])
        assert adopted.json() == {"rule_id": "login", "version": 3}
        assert (await desk.ask("GET /rules/login"))["rule"] == TRIED
        assert (await desk.refusal("GET /rules/login-candidate"))[0] == 404
        assert candidates.snapshot()["rules"] == []
        desk.clock.advance(3600)
        assert await desk.hits(5) == [True] * 3 + [False] * 2
        history = (await desk.ask("GET /history"))["revisions"]
        assert [(one["revision"], one["what"]) for one in history[:2]] == [
            (3, "adopt the candidate of login"),
            (2, "try a candidate of login"),
        ]

    attended(body)


def test_every_change_is_one_event_and_can_be_rolled_back() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("POST /rules/login/candidate", TRIED)
        await desk.ask("POST /rules/login/adopt")
        results = [event for event in desk.audit.events if event.outcome != "attempt"]
        assert [(one.what, one.outcome, one.revision) for one in results] == [
            ("try a candidate of login", "changed", 2),
            ("adopt the candidate of login", "changed", 3),
        ]
        await desk.ask("POST /rollback", {"revision": 2})
        assert (await desk.ask("GET /rules/login"))["rule"] == LOGIN
        assert (await desk.ask("GET /rules/login-candidate"))["rule"]["limit"] == "3/minute"

    attended(body)


def test_discarding_is_deleting_and_deleting_the_rule_takes_it_along() -> None:
    async def body(desk: Desk) -> None:
        for gone, left in (("login-candidate", ["login", "api"]), ("login", ["api"])):
            await desk.ask("POST /rules/login/candidate", TRIED)
            await desk.ask(f"DELETE /rules/{gone}")
            listed = (await desk.ask("GET /rules"))["rules"]
            assert [one["rule_id"] for one in listed] == left

    attended(body)


def test_a_rule_cannot_be_renamed_away_from_its_candidate() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("POST /rules/login/candidate", TRIED)
        policy = (await desk.ask("GET /policy"))["policy"]
        policy["rules"][0]["id"] = "sign-in"
        status, text = await desk.refusal("PUT /policy", policy)
        assert status == 422
        assert "there is no rule 'login' that it could be a candidate of" in text

    attended(body)


def test_what_is_wrong_is_told_and_changes_nothing() -> None:
    async def body(desk: Desk) -> None:
        for line, sent, status, words in (
            ("POST /rules/nobody/candidate", TRIED, 404, "there is no rule 'nobody'"),
            ("POST /rules/nobody/adopt", None, 404, "there is no rule 'nobody'"),
            ("POST /rules/login/adopt", None, 404, "the rule 'login' has no candidate"),
            ("POST /rules/login/adopt", {"x": 1}, 400, "no such field"),
            ("POST /rules/login/candidate", {**TRIED, "limit": "?"}, 422, "login-candidate"),
            ("POST /rules/login/candidate", {**TRIED, "mode": "enforce"}, 422, "expected none"),
            ("POST /rules/login/candidate?x=1", TRIED, 400, "no such parameter"),
            ("POST /rules/login/candidate:preview", {**TRIED, "id": "x"}, 422, "expected none"),
            ("POST /rules/login/adopt:preview", None, 404, "has no candidate"),
        ):
            found = await desk.refusal(line, sent)
            assert found[0] == status, line
            assert words in found[1]
        assert (await desk.call("GET /rules/login/candidate")).status_code == 405
        assert await desk.is_unchanged()

    attended(body)


def test_stale_versions_are_refused() -> None:
    async def body(desk: Desk) -> None:
        status, text = await desk.refusal("POST /rules/login/candidate", TRIED, if_match='"7"')
        assert status == 412
        assert "the rule 'login' with its candidate has version 1; the request names 7" in text
        await desk.ask("POST /rules/login/candidate", TRIED, if_match='"1"')
        assert (await desk.refusal("POST /rules/login/adopt", if_match='"1"'))[0] == 412
        none = {"if_none_match": "*"}
        assert (await desk.refusal("POST /rules/login/candidate", LOGIN, **none))[0] == 412
        await desk.ask("POST /rules/login/adopt", if_match='"2"')

    attended(body)


def test_previews_are_for_readers_and_say_what_would_change() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("POST /rules/login/candidate", TRIED)
        desk.token = READER
        tried = await desk.ask(
            "POST /rules/api/candidate:preview", {"key_by": "ip", "limit": "9/s"}
        )
        assert [one["rule_id"] for one in tried["changes"]["rules"]] == ["api-candidate"]
        assert (tried["valid"], tried["consequences"]) == (True, [])
        adopted = await desk.ask("POST /rules/login/adopt:preview")
        assert adopted["consequences"] == [
            {"rule_id": "login", "effect": "tighter", "message": "was 5/m, now 3/m"}
        ]
        assert (await desk.refusal("POST /rules/login/adopt"))[0] == 403
        assert (await desk.refusal("POST /rules/login/candidate", TRIED))[0] == 403
        assert (desk.storage.head()).number == 2

    attended(body)


def test_a_candidate_that_would_find_nothing_out_is_warned_of() -> None:
    async def body(desk: Desk) -> None:
        content = await desk.ask("POST /rules/login/candidate", LOGIN)
        [warning] = content["warnings"]
        assert warning["message"] == "it is equal to the rule 'login': there is nothing to compare"

    attended(body)
