"""The whole policy over HTTP: got, replaced, its history, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.control.file_source import FileSource
from headgate.control.revision import ReadOnlyError, Revision, SourceError
from headgate.control.source import MemorySource
from tests.support.admin_api import RULES, Desk, attended
from tests.support.shaky_source import ShakySource

ONE: dict[str, Any] = {"version": 1, "rules": [{"id": "one", "key_by": "ip", "limit": "1/m"}]}


def test_the_policy_with_who_made_it() -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.call("GET /policy")
        content = answer.json()
        assert content["policy"] == {"version": 1, "rules": RULES}
        assert (content["revision"], content["author"]) == (1, "eve")
        assert content["versions"] == {"login": 1, "api": 1}
        assert content["time"] == "1970-01-01T00:00:00Z"
        assert answer.headers["etag"] == '"1"'
        assert (await desk.call("GET /policy", if_none_match='"1"')).status_code == 304

    attended(body)


def test_another_policy_takes_its_place_at_once() -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.call("PUT /policy", ONE, if_match='"1"', x_change_note="ticket 7")
        assert answer.json() == {"revision": 2, "changed": True}
        assert answer.headers["etag"] == '"2"'
        content = await desk.ask("GET /policy")
        assert (content["policy"], content["author"], content["note"]) == (ONE, "ada", "ticket 7")
        assert await desk.hits(2) == [True, False]

    attended(body)


def test_a_stale_revision_is_412_and_a_bad_policy_422() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.refusal("PUT /policy", ONE, if_match='"9"'))[0] == 412
        assert (await desk.refusal("PUT /policy", {"version": 1, "rulez": []}))[0] == 422
        assert (await desk.refusal("PUT /policy", {**ONE, "version": 2}))[0] == 422
        assert await desk.is_unchanged()

    attended(body)


def test_the_same_policy_again_changes_nothing() -> None:
    async def body(desk: Desk) -> None:
        content = await desk.ask("PUT /policy", {"version": 1, "rules": RULES})
        assert content == {"revision": 1, "changed": False}

    attended(body)


def test_a_preview_changes_nothing() -> None:
    async def body(desk: Desk) -> None:
        content = await desk.ask("POST /policy:preview", ONE)
        kinds = [(one["rule_id"], one["change"]) for one in content["changes"]["rules"]]
        assert kinds == [("one", "added"), ("login", "removed"), ("api", "removed")]
        assert await desk.is_unchanged()

    attended(body)


class TestHistory:
    def test_the_newest_first_in_pages(self) -> None:
        async def body(desk: Desk) -> None:
            for n in range(2, 6):
                desk.clock.advance(1)
                await desk.ask(f"PUT /rules/r{n}", ONE["rules"][0] | {"id": f"r{n}"})
            content = await desk.ask("GET /history?limit=2")
            assert [one["revision"] for one in content["revisions"]] == [5, 4]
            assert content["next_before"] == 4
            content = await desk.ask("GET /history?limit=9&before=4")
            assert [one["what"] for one in content["revisions"]] == [
                "put rule r3",
                "put rule r2",
                "replace the policy: added login, api",
            ]
            assert [one["author"] for one in content["revisions"]] == ["ada", "ada", "eve"]
            assert content["revisions"][0]["time"] == "1970-01-01T00:00:02Z"
            assert content["next_before"] is None

        attended(body)

    def test_one_revision_with_what_it_changed(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("PUT /policy", ONE)
            content = await desk.ask("GET /history/2")
            assert content["policy"] == ONE
            kinds = {one["rule_id"]: one["change"] for one in content["changes"]["rules"]}
            assert kinds == {"one": "added", "login": "removed", "api": "removed"}
            assert (await desk.ask("GET /history/1"))["changes"]["rules"][0]["change"] == "added"
            assert (await desk.refusal("GET /history/3"))[0] == 404
            assert (await desk.refusal("GET /history/x"))[0] == 404

        attended(body)

    def test_a_revision_whose_predecessor_is_gone_has_no_changes(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("PUT /policy", ONE)
            assert (await desk.ask("GET /history/2"))["changes"] is None

        attended(body, Desk(storage=MemorySource(most=1)))


class TestRollback:
    def test_an_old_policy_is_in_force_again(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("PUT /policy", ONE)
            assert await desk.ask("POST /rollback", {"revision": 1}) == {
                "revision": 3,
                "changed": True,
                "warnings": (await desk.ask("GET /status"))["warnings"],
            }
            assert (await desk.ask("GET /policy"))["policy"]["rules"] == RULES
            assert await desk.hits(6) == [True] * 5 + [False]

        attended(body)

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ({"revision": 9}, 404),
            ({"revision": 0}, 400),
            ({"revision": True}, 400),
            ({"revision": "1"}, 400),
            ({}, 400),
            ({"revision": 1, "force": True}, 400),
        ],
    )
    def test_what_is_no_revision(self, body: Any, status: int) -> None:
        async def main(desk: Desk) -> None:
            assert (await desk.refusal("POST /rollback", body))[0] == status
            assert await desk.is_unchanged()

        attended(main)

    def test_a_stale_revision_is_412(self) -> None:
        async def body(desk: Desk) -> None:
            await desk.ask("PUT /policy", ONE)
            answer = await desk.refusal("POST /rollback", {"revision": 1}, if_match='"1"')
            assert answer[0] == 412

        attended(body)


class Troubled(MemorySource):
    """A storage that makes trouble once something is in it."""

    trouble: Exception | None = None

    def commit(self, revision: Revision) -> None:
        if self.trouble is not None:
            raise self.trouble
        super().commit(revision)


class TestTrouble:
    def test_rules_that_cannot_be_changed_are_409(self) -> None:
        async def body(desk: Desk) -> None:
            assert isinstance(desk.storage, Troubled)
            desk.storage.trouble = ReadOnlyError("rules here are changed by hand")
            status, told = await desk.refusal("PUT /policy", ONE)
            assert (status, "by hand" in told) == (409, True)

        attended(body, Desk(storage=Troubled()))

    def test_a_storage_that_is_down_is_503_and_says_that_nobody_knows(self) -> None:
        async def body(desk: Desk) -> None:
            assert isinstance(desk.storage, Troubled)
            desk.storage.trouble = SourceError("no answer")
            answer = await desk.call("PUT /policy", ONE)
            assert answer.status_code == 503
            assert "not known" in answer.json()["detail"]
            assert answer.headers["retry-after"] == "1"

        attended(body, Desk(storage=Troubled()))

    def test_a_source_that_was_wiped_is_reported_until_a_policy_is_written(self) -> None:
        async def body(desk: Desk) -> None:
            assert isinstance(desk.storage, ShakySource)
            desk.storage.restore(Revision(0))
            for line, sent in (
                ("GET /rules", None),
                ("GET /policy", None),
                ("PUT /rules/login", ONE["rules"][0]),
                ("DELETE /rules/login", None),
                ("POST /policy:preview", ONE),
            ):
                status, told = await desk.refusal(line, sent)
                assert (status, "revision 1 is still enforced" in told) == (409, True), line
            desk.watcher.check_now()
            content = await desk.ask("GET /status")
            assert (content["current"], content["refused_revision"]) == (False, 0)
            assert "the source is empty" in content["problems"][0]["message"]
            assert (await desk.ask("PUT /policy", ONE))["revision"] == 1
            assert (await desk.ask("GET /status"))["current"]
            assert [one["rule_id"] for one in (await desk.ask("GET /rules"))["rules"]] == ["one"]

        attended(body, Desk(storage=ShakySource()))

    def test_a_bad_file_is_told_to_those_who_ask(self, tmp_path: Any) -> None:
        file = tmp_path / "policy.yaml"

        async def body(desk: Desk) -> None:
            file.write_text("version: 1\nrules: [{id: login, limitt: 5/s}]\n")
            status, told = await desk.refusal("GET /policy")
            assert (status, "limitt" in told) == (503, True)
            status, told = await desk.refusal("PUT /policy", ONE)
            assert (status, "limitt" in told, "nothing was changed" in told) == (409, True, True)

        storage = FileSource(file, may_be_missing=True, interval=60, pause=lambda _: None)
        attended(body, Desk(storage=storage))


def test_status_tells_what_is_in_force() -> None:
    async def body(desk: Desk) -> None:
        content = await desk.ask("GET /status")
        assert (content["place"], content["revision"], content["rules"]) == ("memory", 1, 2)
        assert (content["current"], content["stale"], content["problems"]) == (True, False, [])
        assert content["change"]["author"] == "eve"

    attended(body)
