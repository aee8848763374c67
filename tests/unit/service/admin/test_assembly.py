"""The admin API as the service puts it together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from headgate.config.service import Settings
from headgate.engine.request import Request
from headgate.service.admin.app import make_admin
from headgate.service.container import make_container

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "t" * 20
RULES = """
version: 1
rules:
  - {id: login, key_by: ip, limit: 5/hour}
"""


def test_the_default_store_can_be_looked_through(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    container = make_container(Settings(rules=str(rules), admin_token=TOKEN.encode(), secret=b"s"))

    async def main() -> tuple[Any, Any]:
        await container.start()
        assert container.source is not None
        assert container.watcher is not None
        admin = make_admin(
            container.core,
            container.settings,
            container.source,
            container.watcher,
            container.live,
        )
        for _ in range(3):
            await container.core.rules.check(Request(peer="192.0.2.1"))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(admin),
            base_url="http://headgate/admin/v1",
            headers={"authorization": f"Bearer {TOKEN}"},
        ) as client:
            tighter = {"rules": {"login": {"key_by": "ip", "limit": "2/hour"}}}
            preview = await client.post("/rules:preview", json=tighter)
            listed = await client.get("/keys?rule=login")
        await container.aclose()
        return preview.json(), listed.json()

    preview, listed = asyncio.run(main())
    assert preview["counters"]["affected"][0].pop("shown_key").startswith("ip=~")
    assert preview["counters"] == {
        "available": True,
        "affected": [
            {
                "rule_id": "login",
                "key": "ip=192.0.2.1",
                "is_digest": False,
                "limit": 0,
                "used": 3,
                "refused_now": False,
                "refused_after": True,
            }
        ],
        "more": False,
    }
    assert [one["key"] for one in listed["counters"]] == ["ip=192.0.2.1"]
