"""What is told of how things stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.admin_api import READER, attended

if TYPE_CHECKING:
    from tests.support.admin_api import Desk


def test_status_tells_callers_who_they_are_and_what_they_may() -> None:
    async def body(desk: Desk) -> None:
        assert (await desk.ask("GET /status"))["caller"] == {"name": "ada", "role": "write"}
        told = await desk.ask("GET /status", authorization=f"Bearer {READER}")
        assert told["caller"] == {"name": "bob", "role": "read"}

    attended(body)
