"""GET /live: what the service is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.limits import TokenBucket
from headgate.observability import METRICS, RECORDER
from headgate.policy.identity.parts import hashed_key
from headgate.service.admin.app import admin_paths
from headgate.stores.base import groups_of
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.operations import Check, Take
from tests.support.admin_api import READER, Desk, attended
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    import pytest

NAMES = (
    "at began version workers node nodes policy store factor requests latency rules series "
    "busiest_keys refused_keys hot_keys bounds queues candidates"
)


def test_all_of_it_is_told_to_whoever_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stores of other tests, which may have failed, are measured for as long as they live.
    monkeypatch.setattr(METRICS, "_families", {})

    async def body(desk: Desk) -> None:
        desk.token = READER
        before = await desk.ask("GET /live")
        assert await desk.hits(7) == [True] * 5 + [False] * 2
        found = await desk.ask("GET /live")
        assert sorted(found) == sorted(NAMES.split())
        assert _difference(before, found, "requests", "allowed") == 5
        assert _difference(before, found, "requests", "denied") == 2
        assert found["policy"] == {
            "revision": 1,
            "rules": 2,
            "current": True,
            "stale": False,
            "trouble": None,
            "problems": 0,
            "failures": 0,
        }
        assert found["store"]["state"] == "ok"
        assert found["workers"] == 1
        assert [row["rule_id"] for row in found["rules"][:2]] == ["login", "api"]
        assert found["series"]["step"] == 1

    attended(body)


def test_the_names_are_those_of_the_document() -> None:
    answer = admin_paths()["/admin/v1/live"]["get"]["responses"]["200"]
    schema = answer["content"]["application/json"]["schema"]
    assert sorted(schema["properties"]) == sorted(NAMES.split())


def test_without_a_token_nothing_is_told() -> None:
    async def body(desk: Desk) -> None:
        desk.token = None
        assert (await desk.call("GET /live")).status_code == 401
        desk.token = READER
        assert (await desk.call("GET /live?x=1")).status_code == 400
        assert (await desk.call("POST /live")).status_code == 405

    attended(body)


def test_keys_are_hashed_unless_they_are_to_be_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "ip=192.0.2.1"
    for show, told in ((hashed_key, hashed_key(key)), (str, key)):
        store = LeasedStore(LeaseGrantingStore())
        monkeypatch.setattr(RECORDER, "most_denied", type(RECORDER.most_denied)(16))

        async def body(desk: Desk, told: str = told) -> None:
            await desk.hits(7)
            check = Check(groups_of("headgate", "login", 1)[0], key, TokenBucket(9, 9))
            await desk.engine.engine.store.arun(Take((check,)))
            found = await desk.ask("GET /live")
            assert _keys(found["refused_keys"]) == {told}
            assert _keys(found["hot_keys"]) == {told}
            assert found["hot_keys"][0]["rule_id"] == "login"
            assert _keys((await desk.ask("GET /pressure"))["hot_keys"]) == {told}

        attended(body, Desk(store=store, show_key=show))


def _keys(rows: list[dict[str, Any]]) -> set[str]:
    return {row["key"] for row in rows}


def _difference(before: Any, after: Any, *path: str) -> int:
    for name in path:
        before, after = before[name], after[name]
    return int(after - before)
