"""Concurrency limits in the gateway: a request has its slot until its response has ended."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx

from tests.support.gateway_process import gateway
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
version: 1
rules:
  - {id: slots, match: {endpoint: /slow}, key_by: api_key, concurrency: {limit: 2, ttl: 1h}}
  - {id: requests, match: {endpoint: /slow}, key_by: api_key, limit: 4/day strict}
"""
ADA = {"x-api-key": "ada"}


def test_slots_are_released_when_a_response_ends_or_its_client_hangs_up(tmp_path: Path) -> None:
    """A request that another rule denies takes none."""
    with gateway(tmp_path, rules=RULES) as one, ExitStack() as stack:
        assert "concurrency" not in one.log
        url = f"{one.url}/slow"
        first = stack.enter_context(httpx.stream("GET", f"{url}?seconds=1", headers=ADA))
        gone = httpx.stream("GET", f"{url}?seconds=60", headers=ADA)
        assert gone.__enter__().status_code == first.status_code == 200
        denied = one.get("/slow")
        assert (denied.status_code, denied.json()["limit"]) == (429, "slots")
        assert one.get("/slow", "eve").status_code == 200
        gone.__exit__(None, None, None)
        first.read()

        def left() -> str:
            body = {"path": "/slow", "headers": ADA, "peek": True}
            checked = httpx.post(f"{one.service_url}/v1/check", json=body).json()
            return ",".join(str(rule["remaining"]) for rule in checked["rules"])

        wait_until(lambda: left() == "2,2", "both slots are free")
        assert one.statuses(3, "/slow") == [200, 200, 429]
        wait_until(lambda: left() == "2,0", "a denial holds no slot")
