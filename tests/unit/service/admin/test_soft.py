"""Rules with queues and with turns: put, listed, previewed, looked up."""

from __future__ import annotations

from typing import Any

from tests.support.admin_api import Desk, attended
from tests.unit.service.admin.test_rules import Live

FAIR: dict[str, Any] = {"key_by": "ip", "fair": {"slots": 5}}
SHAPE: dict[str, Any] = {"key_by": "ip", "shape": {"rate": "2/s", "queue": 3}}


def test_a_rule_by_which_requests_take_turns_is_put_listed_and_previewed() -> None:
    async def body(desk: Desk) -> None:
        preview = await desk.ask("POST /rules:preview", {"rules": {"turns": FAIR}})
        assert preview["valid"] is True
        assert preview["consequences"][0]["effect"] == "new"
        await desk.ask("PUT /rules/turns", FAIR)
        assert (await desk.ask("GET /rules/turns"))["rule"]["fair"] == {"slots": 5}
        assert {one["rule_id"] for one in (await desk.ask("GET /rules"))["rules"]} >= {"turns"}
        other = {"key_by": "ip", "limit": "5/s"}
        preview = await desk.ask("POST /rules:preview", {"rules": {"turns": other}})
        assert [one["effect"] for one in preview["consequences"]] == ["algorithm"]
        assert await desk.hits(2) == [True, True]

    attended(body, Desk(live=Live()))


def test_it_has_no_counters_to_look_at() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("PUT /rules/turns", FAIR)
        for named in ({"key": "ip=192.0.2.1"}, {"identity": {"ip": "192.0.2.1"}}):
            status, told = await desk.refusal("POST /keys:lookup", {"rule": "turns", **named})
            assert (status, "fair queue" in told) == (422, True)
        assert (await desk.refusal("POST /keys:reset", {"rule": "turns", "key": "ip=1"}))[0] == 422

    attended(body)


def test_a_queue_is_a_counter_like_any_other() -> None:
    async def body(desk: Desk) -> None:
        await desk.ask("PUT /rules/exports", SHAPE)
        assert await desk.hits(3, path="/x") == [True, True, True]
        named = {"rule": "exports", "identity": {"ip": "192.0.2.1"}}
        (limit,) = (await desk.ask("POST /keys:lookup", named))["limits"]
        assert (limit["limit"], limit["algorithm"]) == ("2/s in a queue of 3", "leaky_queue")
        assert (limit["quota"], limit["used"], limit["remaining"]) == (4, 3, 1)
        await desk.ask("POST /keys:reset", named)
        assert await desk.hits(5, path="/x") == [True] * 4 + [False]
        preview = await desk.ask("POST /rules:preview", {"rules": {"exports": FAIR}})
        assert [one["effect"] for one in preview["consequences"]] == ["algorithm"]

    attended(body)
