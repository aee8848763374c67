"""What nodes report to each other through a store."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.errors import StoreError, StoreFault
from headgate.service.live.fleet import TTL_NS, Fleet, figures_of, node_name
from headgate.service.live.merged_view import merged_view
from headgate.service.live.recorder import WHOLE
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.live_states import NOW, NOW_NS, STORE, snapshot_of


def view_of(**more: Any) -> dict[str, Any]:
    at_ns = NOW * SECOND
    return merged_view([snapshot_of(**more)], [], now_ns=NOW_NS, at_ns=at_ns, show_key=str)


def fleet_of(store: MemoryStore, node: str, digest: float = 1.0) -> Fleet:
    return Fleet(store, namespace="test", node=node, digest=lambda: digest)


def test_every_node_knows_what_all_report() -> None:
    store = MemoryStore(clock=ManualClock())
    one, other = fleet_of(store, "a:1"), fleet_of(store, "b:1", digest=2.0)
    busy = view_of(allowed={WHOLE: [20] * 10}, store={**STORE, "state": "open"})
    asyncio.run(one.publish(busy))
    asyncio.run(other.publish(view_of()))
    quiet = {"node": "b:1", "allowed": 0.0, "denied": 0.0, "p99": None, "store": "ok"}
    quiet |= {"revision": 7.0, "workers": 1.0, "digest": 2.0}
    assert other.nodes == [
        quiet | {"node": "a:1", "allowed": 20.0, "store": "open", "digest": 1.0},
        quiet,
    ]


def test_a_node_that_no_longer_reports_disappears() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, other = fleet_of(store, "a:1"), fleet_of(store, "b:1")
    asyncio.run(one.publish(view_of()))
    clock.advance(TTL_NS / SECOND + 1)
    asyncio.run(other.publish(view_of()))
    assert [node["node"] for node in other.nodes] == ["b:1"]


class Gone(MemoryStore):
    """Is shared, and fails with *fault* if there is one."""

    is_shared = True
    fault: StoreFault | None = None
    calls = 0

    async def arun(self, operation: Any) -> Any:
        self.calls += 1
        if self.fault is not None:
            raise StoreError("no reply", reason=self.fault)
        return await super().arun(operation)


def test_without_the_store_no_node_is_known() -> None:
    store = Gone(clock=ManualClock())
    one = fleet_of(store, "a:1")
    asyncio.run(one.publish(view_of()))
    store.fault = "timeout"
    asyncio.run(one.publish(view_of()))
    assert one.nodes == []
    assert one.is_possible, "it tries again"


def test_without_the_permission_it_is_tried_once() -> None:
    store = Gone(clock=ManualClock())
    store.fault = "denied"
    one = fleet_of(store, "a:1")
    assert one.is_possible
    asyncio.run(one.publish(view_of()))
    assert store.calls == 1
    assert not one.is_possible


def test_a_store_of_one_process_has_no_fleet() -> None:
    assert not fleet_of(MemoryStore(), "a:1").is_possible


def test_figures_that_are_not_known_are_marked() -> None:
    found = figures_of(view_of(policy={**view_of()["policy"], "revision": None}))
    assert (found["revision"], found["p99"]) == (-1, -1)


def test_a_node_is_named_by_its_host_and_port() -> None:
    assert node_name("127.0.0.1:8090").endswith(":8090")
    assert node_name("unix:/run/a.sock").endswith(":/run/a.sock")
