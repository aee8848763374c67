"""Who is let in, and what is noted of whom."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate.config.values import AdminCertificate, AdminToken
from headgate.control.source import MemorySource
from headgate.errors import OptionError
from tests.support.admin_api import READER, WRITER, Desk, FailingAudit, attended

if TYPE_CHECKING:
    from headgate.control.audit import AuditEvent
    from headgate.control.revision import Revision

RULE = {"key_by": "ip", "limit": "7/s"}
WRITES: list[tuple[str, Any]] = [
    ("PUT /rules/new", RULE),
    ("DELETE /rules/login", None),
    ("POST /rules/login:disable", None),
    ("POST /rules/login:enable", None),
    ("POST /rules/login/candidate", RULE),
    ("PUT /policy", {"version": 1, "rules": []}),
    ("POST /rollback", {"revision": 1}),
    ("POST /keys:reset", {"rule": "login", "key": "ip=1"}),
    ("POST /keys:grant", {"rule": "login", "key": "ip=1", "extra": 1, "ttl": 9}),
    ("POST /keys:block", {"rule": "login", "key": "ip=1", "ttl": 9}),
    ("POST /keys:unblock", {"rule": "login", "key": "ip=1"}),
    ("DELETE /overrides?rule=login&key=ip=1", None),
    ("POST /rules/login/adopt", None),
]
READS: list[tuple[str, Any]] = [
    ("GET /rules", None),
    ("GET /rules/login", None),
    ("POST /rules:preview", {"rules": {"new": RULE}}),
    ("POST /rules/login/candidate:preview", RULE),
    ("GET /policy", None),
    ("POST /policy:preview", {"version": 1}),
    ("GET /history", None),
    ("GET /history/1", None),
    ("GET /keys?rule=login&key=ip=1", None),
    ("POST /keys:lookup", {"rule": "login", "key": "ip=1"}),
    ("GET /overrides", None),
    ("GET /status", None),
    ("GET /pressure", None),
    ("GET /audit", None),
]


@pytest.mark.parametrize(("line", "body"), READS + WRITES)
def test_nobody_gets_in_without_a_token(line: str, body: Any) -> None:
    async def main(desk: Desk) -> None:
        for token in (None, "wrong", "", WRITER[:-1], WRITER + "w"):
            desk.token = token
            answer = await desk.call(line, body)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="headgate admin"'
            assert "etag" not in answer.headers
        assert await desk.is_unchanged()

    attended(main)


@pytest.mark.parametrize(("line", "body"), WRITES)
def test_a_reader_changes_nothing(line: str, body: Any) -> None:
    async def main(desk: Desk) -> None:
        desk.token = READER
        status, told = await desk.refusal(line, body)
        assert (status, "has the role read" in told) == (403, True)
        assert await desk.is_unchanged()

    attended(main)


@pytest.mark.parametrize(("line", "body"), READS)
def test_a_reader_reads_everything_and_reading_is_not_noted(line: str, body: Any) -> None:
    async def main(desk: Desk) -> None:
        desk.token = READER
        assert (await desk.call(line, body)).status_code == 200
        assert desk.audit.events == []

    attended(main)


@pytest.mark.parametrize(
    "line", [f"Bearer {WRITER}", f"bearer {WRITER}", f"BEARER  {WRITER} "], ids=["a", "b", "c"]
)
def test_the_scheme_is_in_any_case(line: str) -> None:
    async def main(desk: Desk) -> None:
        assert (await desk.call("GET /rules", authorization=line)).status_code == 200

    attended(main)


@pytest.mark.parametrize("line", [WRITER, f"Basic {WRITER}", "Bearer", "Bearer " + "x" * 9_000])
def test_anything_else_is_no_token(line: str) -> None:
    async def main(desk: Desk) -> None:
        assert (await desk.call("GET /rules", authorization=line)).status_code == 401

    attended(main)


def test_two_tokens_in_one_call_are_none() -> None:
    async def main(desk: Desk) -> None:
        lines = [("authorization", f"Bearer {one}") for one in (WRITER, READER)]
        answer = await desk.client.get("/rules", headers=lines)
        assert answer.status_code == 401

    attended(main)


def test_without_any_token_set_it_is_closed() -> None:
    async def main(desk: Desk) -> None:
        status, told = await desk.refusal("GET /rules")
        assert (status, "HEADGATE_ADMIN_TOKEN" in told) == (403, True)

    attended(main, Desk(tokens=()))


@pytest.mark.parametrize(
    ("line", "status", "allow"),
    [
        ("GET /nothing", 404, None),
        ("GET /rules/", 404, None),
        ("GET /rules/a/b", 404, None),
        ("GET /rules/a:explode", 404, None),
        ("POST /rules", 405, "GET"),
        ("PATCH /rules/login", 405, "DELETE, GET, PUT"),
        ("GET /rollback", 405, "POST"),
    ],
)
def test_paths_and_methods_that_are_not_there(line: str, status: int, allow: str | None) -> None:
    async def main(desk: Desk) -> None:
        answer = await desk.call(line)
        assert (answer.status_code, answer.headers.get("allow")) == (status, allow)

    attended(main)


class TestCertificate:
    def test_a_certificate_is_as_good_as_a_token(self) -> None:
        async def main(desk: Desk) -> None:
            assert await status_with(desk, {"client_cert_name": "CN=ops"}) == 200
            assert await status_with(desk, {"client_cert_name": "CN=other"}) == 401
            assert await status_with(desk, {"client_cert_name": ""}) == 401
            forged = {"client_cert_name": "CN=ops", "client_cert_error": "expired"}
            assert await status_with(desk, forged) == 401

        attended(main, Desk(tokens=(), certificates=(AdminCertificate("ops", "write", "CN=ops"),)))


async def status_with(desk: Desk, tls: dict[str, Any]) -> int:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/admin/v1/rules",
        "headers": [],
        "query_string": b"",
        "extensions": {"tls": tls},
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await desk.app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    "made",
    [
        lambda: AdminToken("", "read", b"x" * 32),
        lambda: AdminToken("a", "admin", b"x" * 32),  # type: ignore[arg-type]
        lambda: AdminToken("a", "read", b"short"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(made: Any) -> None:
    with pytest.raises(OptionError):
        made()


class TestAudit:
    def test_a_change_is_noted_before_and_after(self) -> None:
        async def main(desk: Desk) -> None:
            await desk.ask("PUT /rules/new?", RULE, x_change_note="ticket 7")
            attempt, result = desk.audit.events
            assert (attempt.outcome, result.outcome) == ("attempt", "changed")
            assert attempt.id == result.id
            assert (result.author, result.peer, result.method) == ("ada", "127.0.0.1", "PUT")
            assert (result.path, result.status, result.revision) == ("/admin/v1/rules/new", 200, 2)
            assert (result.what, result.note) == ("put rule new", "ticket 7")

        attended(main)

    @pytest.mark.parametrize(("line", "body"), WRITES[:10])
    def test_every_write_is_noted(self, line: str, body: Any) -> None:
        async def main(desk: Desk) -> None:
            await desk.ask(line, body)
            assert desk.audit.events[0].outcome == "attempt"
            assert desk.audit.events[-1].what
            assert desk.audit.events[-1].outcome in ("changed", "unchanged")

        attended(main)

    def test_refused_attempts_are_noted(self) -> None:
        async def main(desk: Desk) -> None:
            await desk.call("PUT /rules/login", RULE, if_match='"9"')
            await desk.call("PUT /rules/login", {"limitt": 1})
            await desk.call("PUT /rules/login", RULE, authorization=f"Bearer {READER}")
            await desk.call("GET /rules", authorization="Bearer no")
            told = [(e.author, e.outcome, e.status) for e in desk.audit.events]
            assert told == [
                ("ada", "attempt", None),
                ("ada", "refused", 412),
                ("ada", "attempt", None),
                ("ada", "refused", 422),
                ("bob", "refused", 403),
                (None, "refused", 401),
            ]

        attended(main)

    def test_what_cannot_be_noted_is_not_done(self) -> None:
        async def main(desk: Desk) -> None:
            await desk.hits(5)
            desk.audit.is_full = True
            for line, body in WRITES[:9]:
                answer = await desk.call(line, body)
                assert answer.status_code == 503, line
                assert "audit" in answer.json()["detail"]
            assert await desk.is_unchanged()
            assert await desk.hits(1) == [False]

        attended(main)

    def test_an_attempt_has_an_end_whatever_goes_wrong(self) -> None:
        class Broken(MemorySource):
            def commit(self, revision: Revision) -> None:
                if revision.number > 1:
                    raise ZeroDivisionError
                super().commit(revision)

        async def main(desk: Desk) -> None:
            with pytest.raises(ZeroDivisionError):
                await desk.call("DELETE /rules/login")
            told = [(event.outcome, event.status) for event in desk.audit.events]
            assert told == [("attempt", None), ("failed", 500)]

        attended(main, Desk(storage=Broken()))

    def test_a_change_that_could_not_be_noted_afterwards_is_told_to_the_log(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class FullAfterOne(FailingAudit):
            async def write(self, event: AuditEvent) -> None:
                await super().write(event)
                self.is_full = True

        async def main(desk: Desk) -> None:
            await desk.ask("PUT /rules/new", RULE)
            assert "put rule new" in caplog.text

        attended(main, Desk(audit=FullAfterOne()))

    def test_no_secret_is_in_it(self) -> None:
        async def main(desk: Desk) -> None:
            secret = "hunter2-hunter2"  # noqa: S105
            await desk.ask("PUT /rules/keyed", {"key_by": "api_key", "limit": "1/s"})
            named = {"rule": "keyed", "identity": {"api_key": secret}, "ttl": 9}
            content = await desk.ask("POST /keys:block", named)
            assert content["key"].startswith("api_key=~")
            await desk.call(f"GET /keys?rule={secret}", authorization=f"Bearer {secret}")
            noted = "".join(event.to_line() for event in desk.audit.events)
            kept = json.dumps(dict((desk.storage.head()).document))
            for text in (noted, kept):
                assert secret not in text
                assert WRITER not in text

        attended(main)

    def test_strangers_cannot_fill_the_disk(self) -> None:
        async def main(desk: Desk) -> None:
            desk.token = "no"  # noqa: S105
            await asyncio.gather(*(desk.call("GET /rules") for _ in range(300)))
            assert len(desk.audit.events) == 100
            desk.token = WRITER
            await desk.ask("PUT /rules/new", RULE)
            left_out = sum(event.left_out for event in desk.audit.events)
            strangers = sum(event.author is None for event in desk.audit.events)
            assert left_out + strangers == 300

        attended(main)

    def test_it_can_be_read(self) -> None:
        async def main(desk: Desk) -> None:
            await desk.ask("PUT /rules/new", RULE)
            events = (await desk.ask("GET /audit?limit=1"))["events"]
            assert [(one["outcome"], one["revision"]) for one in events] == [("changed", 2)]

        attended(main)
