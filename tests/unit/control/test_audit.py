"""Lines of who did what: whole, one for each event, and never in silence missing."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from typing import TYPE_CHECKING

import pytest

from headgate.control.audit import AuditError, AuditEvent, AuditFile, AuditLog
from headgate.observability.denials import FIELDS

if TYPE_CHECKING:
    from pathlib import Path


def event(number: int = 1, **more: object) -> AuditEvent:
    return AuditEvent(
        time_ns=1_700_000_000_000_000_000,
        id=f"e{number}",
        author="ada",
        peer="127.0.0.1",
        method="PUT",
        path="/admin/v1/rules/login",
        outcome="changed",
        **more,  # type: ignore[arg-type]
    )


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    line = event(what="put rule \n\u2028 x", note="\N{SNOWMAN}").to_line()
    assert "\n" not in line
    assert line.isascii()
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20Z",
        "id": "e1",
        "author": "ada",
        "peer": "127.0.0.1",
        "method": "PUT",
        "path": "/admin/v1/rules/login",
        "outcome": "changed",
        "what": "put rule \n\u2028 x",
        "note": "\N{SNOWMAN}",
    }


def test_a_file_has_all_events_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"

    async def main() -> None:
        audit = AuditFile(file)
        assert await audit.latest(10) == []
        for number in (1, 2, 3):
            await audit.write(event(number))
        assert [one["id"] for one in await audit.latest(2)] == ["e3", "e2"]

    asyncio.run(main())
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == ["e1", "e2", "e3"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_may_be_rotated_by_others(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"

    async def main() -> None:
        audit = AuditFile(file)
        await audit.write(event(1))
        file.rename(tmp_path / "audit.log.1")
        await audit.write(event(2))
        assert [one["id"] for one in await audit.latest(9)] == ["e2"]

    asyncio.run(main())


def test_a_line_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path / "none" / "audit.log")
    with pytest.raises(AuditError, match="cannot be written"):
        asyncio.run(audit.write(event()))


def test_lines_that_were_cut_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text(f'{{"half\n{event().to_line()}\n[]\n')
    assert [one["id"] for one in asyncio.run(AuditFile(file).latest(9))] == ["e1"]


def test_a_log_has_them_as_lines_and_remembers_the_last(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        audit = AuditLog(logging.getLogger("headgate.audit"))
        for number in (1, 2):
            await audit.write(event(number))
        assert [one["id"] for one in await audit.latest(9)] == ["e2", "e1"]

    asyncio.run(main())
    said = "audit: PUT /admin/v1/rules/login by ada at 127.0.0.1: changed (id e1)"
    assert caplog.messages[0] == said
    assert getattr(caplog.records[0], FIELDS)["id"] == "e1"
