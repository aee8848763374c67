"""The settlement of a reservation goes on if its caller is cancelled: done once, and whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from headgate.runtime.drivers import adrive
from headgate.testing import ManualClock
from tests.support.http_app import START, FakeStore, app_of, post
from tests.support.interruption import interrupted_at

if TYPE_CHECKING:
    from headgate.runtime.effects import Effect

POLICY = """
version: 1
rules:
  - {id: tokens, key_by: ip, limit: 100/hour}
  - {id: slots, key_by: ip, concurrency: {limit: 3, ttl: 1h}}
"""


@pytest.mark.parametrize("is_offline", [False, True], ids=["held", "granted without the store"])
def test_a_cancelled_settlement_charges_and_releases_all_the_same(*, is_offline: bool) -> None:
    for place in range(2):
        clock = ManualClock(START)
        store = FakeStore(clock)
        store.reason = "refused"  # of which no breaker takes notice
        app = app_of(POLICY, clock=clock, store=store)
        store.is_gone = store.is_undone = is_offline
        made = post(app, "/v1/reservations", {"path": "/", "cost": {"tokens": 30}, "ttl": 60})
        assert made.status == 201
        store.is_gone = False
        reservations = app._reservations
        receipt = reservations._receipt(made.json["id"].encode())
        settling: Any = reservations._settlements.settle(receipt, {"tokens": 12})
        steps: list[Effect] = []
        effects = interrupted_at(settling, place, cast("Any", None), "before", steps)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(adrive(effects))
        assert len(steps) == 2
        peeked = post(app, "/v1/check", {"path": "/", "peek": True, "cost": 0}).json["rules"]
        assert [one["remaining"] for one in peeked] == [88, 3]
